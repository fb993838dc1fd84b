//! HTTP: extractors, problem documents, layers, event streams. Knows no feature.

pub mod assets;
pub mod extract;
pub mod layers;
pub mod page;
pub mod paging;
pub mod problem;
pub mod sse;
