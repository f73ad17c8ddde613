//! What daemons do here: `session` is the connection and its calls, `dispatch` hands jobs out, `reports` takes what daemons
//! send about them, `rescue` ends jobs that no daemon will end, `credentials` ends what a key or a token authenticated.

pub mod credentials;
pub mod dispatch;
pub mod reports;
pub mod rescue;
pub mod session;
