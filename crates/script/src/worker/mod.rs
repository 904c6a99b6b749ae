//! Script workers: processes that run scripts for a server and can be killed.
//!
//! ```text
//! server                                   worker
//!   take a worker from the pool    ◄─────   Ready
//!   Run (source, arguments, limits) ─────►  a new sandbox
//!   the collection                 ◄─────   Ask, as often as the script calls it
//!                                  ─────►   Answer
//!   give the worker back           ◄─────   Done or Failed, then the sandbox is freed
//! ```
//!
//! The engine cannot be interrupted inside of every step, and a bug in it can abort its process. In a worker
//! neither harms the server: a worker that is silent past the deadline is killed, and one that exits fails the
//! script it ran. Items stay in the server; a worker reads and writes them over its socket.
//!
//! A worker has no state between two scripts. It exits instead of serving another one when a script has
//! exceeded its limits, or when the process has grown.

mod channel;
mod pool;
mod remote;
mod serve;

pub use pool::Workers;
pub(crate) use remote::RemoteFunctions;
pub use serve::serve_worker;
