//! Starts a Postgres server of its own for tests, and gives each test an empty database.
