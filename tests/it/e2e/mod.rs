//! The whole product as one process, driven from outside: command line and HTTP.

mod demo;
mod doors;
mod interrupted;
