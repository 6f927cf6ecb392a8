//! The load driver: measures a node the way its users load it.
