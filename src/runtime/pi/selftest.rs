//! One real turn against a model of our own, after an installation.
