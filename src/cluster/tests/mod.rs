mod log;
mod simulation;
mod sockets;
