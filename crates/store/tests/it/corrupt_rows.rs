//! An invalid value in a row is an error that names table, column and row but not the value.

use coder_domain::tags::TagSet;
use coder_store::{Error, check, jobs, users};

use crate::fixture::{Fixture, on_both_engines};

on_both_engines!(bad_values_are_named, a_bad_job_is_found_by_the_check);

async fn bad_values_are_named(fixture: Fixture) {
    let cases = [
        ("site_roles = 'secret['", "site_roles"),
        ("created_us = 9223372036854775807", "created_us"),
        ("login_type = ''", "login_type"),
    ];
    for (change, want) in cases {
        let user = fixture.user;
        fixture.database().execute(&format!("update users set {change} where id = '{user}'")).await;
        let error = users::get(&mut fixture.store.reader().await.unwrap(), user).await.unwrap_err();
        let Error::Corrupt { table, column, id, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*table, *column, id.as_str()), ("users", want, user.to_string().as_str()));
        assert!(!error.to_string().contains("secret"), "{error}");
        fixture.database()
            .execute("update users set site_roles = '[]', created_us = 0, login_type = 'password' where not is_system")
            .await;
    }
    assert!(users::get(&mut fixture.store.reader().await.unwrap(), fixture.user).await.is_ok());
}

async fn a_bad_job_is_found_by_the_check(fixture: Fixture) {
    let job = fixture.job(&TagSet::untagged()).await;
    fixture.database().execute("update provisioner_jobs set input = '{'").await;
    let error = jobs::get(&mut fixture.store.reader().await.unwrap(), job).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { column: "input", .. }), "{error:?}");
    let found = check::check(&fixture.store).await.unwrap();
    let unreadable = found.iter().find(|violation| violation.invariant == "every job can be read").unwrap();
    assert_eq!(unreadable.id, job.to_string());
}
