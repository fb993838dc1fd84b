//! The pages over the real router.
