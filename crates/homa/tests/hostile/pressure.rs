//! Placeholder until the next step.
