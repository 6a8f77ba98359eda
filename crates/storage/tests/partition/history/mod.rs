//! Random histories: what is generated, the reference, and the driver that runs both.

pub mod driver;
pub mod generate;
pub mod model;
pub mod substitute;
