//! Leases: overlap, proof, recovery.

mod leases;
