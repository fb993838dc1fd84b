//! HTTP: extractors, problem documents, layers, event streams. Knows no feature.

pub mod extract;
pub mod layers;
pub mod paging;
pub mod problem;
pub mod sse;
