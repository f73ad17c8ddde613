//! A route table that is both data and router. Each row says who may call it, and tests iterate over the rows.

use axum::Router;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, on};
use http::Method;

use super::layers;
use crate::authn::csrf;
use crate::context::App;
use crate::http::limits::Group;

/// Who may call a route. The handler decides about permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anybody.
    Public,
    /// Callers with a valid session or token.
    Authenticated,
    /// The handler checks a daemon's credentials itself.
    Daemon,
    /// The handler takes an [`AgentCaller`](crate::agents::authenticate::AgentCaller).
    Agent,
}

#[derive(Debug, Clone)]
pub struct Row {
    pub method: Method,
    /// Path with `{parameters}`.
    pub path: String,
    /// Who may call it.
    pub access: Access,
    /// Additional rate limit.
    pub group: Option<Group>,
}

/// Builds the table.
pub struct Table {
    app: App,
    rows: Vec<Row>,
    router: Router<App>,
}

impl Table {
    /// An empty table.
    pub fn new(app: App) -> Self {
        Self { app, rows: Vec::new(), router: Router::new() }
    }

    /// A route for `GET` (and `HEAD`).
    #[must_use]
    pub fn get<T: 'static>(self, access: Access, path: &str, handler: impl Handler<T, App>) -> Self {
        self.row(Method::GET, MethodFilter::GET, access, None, path, handler)
    }

    /// A route for `POST`.
    #[must_use]
    pub fn post<T: 'static>(self, access: Access, path: &str, handler: impl Handler<T, App>) -> Self {
        self.row(Method::POST, MethodFilter::POST, access, None, path, handler)
    }

    /// A route for `PUT`.
    #[must_use]
    pub fn put<T: 'static>(self, access: Access, path: &str, handler: impl Handler<T, App>) -> Self {
        self.row(Method::PUT, MethodFilter::PUT, access, None, path, handler)
    }

    /// A route for `PATCH`.
    #[must_use]
    pub fn patch<T: 'static>(self, access: Access, path: &str, handler: impl Handler<T, App>) -> Self {
        self.row(Method::PATCH, MethodFilter::PATCH, access, None, path, handler)
    }

    /// A route for `DELETE`.
    #[must_use]
    pub fn delete<T: 'static>(self, access: Access, path: &str, handler: impl Handler<T, App>) -> Self {
        self.row(Method::DELETE, MethodFilter::DELETE, access, None, path, handler)
    }

    /// A route for `GET` with its own rate limit.
    #[must_use]
    pub fn get_limited<T: 'static>(
        self,
        group: Group,
        access: Access,
        path: &str,
        handler: impl Handler<T, App>,
    ) -> Self {
        self.row(Method::GET, MethodFilter::GET, access, Some(group), path, handler)
    }

    /// A route for `POST` with its own rate limit.
    #[must_use]
    pub fn post_limited<T: 'static>(
        self,
        group: Group,
        access: Access,
        path: &str,
        handler: impl Handler<T, App>,
    ) -> Self {
        self.row(Method::POST, MethodFilter::POST, access, Some(group), path, handler)
    }

    /// A route for `PUT` with its own rate limit.
    #[must_use]
    pub fn put_limited<T: 'static>(
        self,
        group: Group,
        access: Access,
        path: &str,
        handler: impl Handler<T, App>,
    ) -> Self {
        self.row(Method::PUT, MethodFilter::PUT, access, Some(group), path, handler)
    }

    fn row<T: 'static>(
        mut self,
        method: Method,
        filter: MethodFilter,
        access: Access,
        group: Option<Group>,
        path: &str,
        handler: impl Handler<T, App>,
    ) -> Self {
        let mut route = on(filter, handler);
        // Layers run from the last added to the first: authentication comes before the caller's own limit.
        if let Some(group) = group {
            route = route.route_layer(from_fn_with_state((self.app.clone(), group), layers::limit_caller));
        }
        route = match access {
            Access::Authenticated => {
                route.route_layer(from_fn_with_state(self.app.clone(), layers::authenticate))
            }
            Access::Public if !csrf::is_safe(&method) => {
                route.route_layer(from_fn_with_state(self.app.clone(), layers::refuse_foreign))
            }
            Access::Public | Access::Daemon | Access::Agent => route,
        };
        self.router = self.router.route(path, route);
        self.rows.push(Row { method, path: path.to_owned(), access, group });
        self
    }

    /// The rows and the router.
    pub fn finish(self) -> (Vec<Row>, Router<App>) {
        (self.rows, self.router)
    }
}
