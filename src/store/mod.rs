//! The storage engine behind one small interface, and the layout of its keys.
