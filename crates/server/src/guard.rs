//! Who may talk to the server. On loopback anybody on this machine may, but no web page: neither through a host name of
//! its own (DNS rebinding) nor across sites. Elsewhere a token is asked for.

use std::collections::BTreeSet;
use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN, REFERER};
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::Response;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

use crate::api::error::Problem;
use crate::api::state::App;

/// Header that carries a writer's key (Hudi 0.6 to 1.2.0).
pub const CALLBACK_KEY: HeaderName = HeaderName::from_static("hudi-callback-key");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What requests are checked against.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Host names that requests may be addressed to; unset = any, because a token is asked for.
    pub hosts: Option<BTreeSet<String>>,
    /// Addresses that a page of ours may come from besides the one that the request is addressed to.
    pub origins: BTreeSet<String>,
    /// Token of the API.
    pub token: Option<SecretString>,
    /// Key of writers.
    pub callback_key: Option<SecretString>,
}

impl Guard {
    /// Refuses what a web page could have sent; for every route.
    ///
    /// # Errors
    /// What the caller is answered.
    pub fn check_source(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        let text = |name: &HeaderName| headers.get(name).map(|v| v.to_str().unwrap_or("?"));
        let authority = uri.authority().map(|a| a.as_str()).or_else(|| text(&HOST)).unwrap_or_default();
        if let Some(hosts) = &self.hosts
            && !is_loopback_name(host_of(authority))
            && !hosts.contains(&host_of(authority).to_ascii_lowercase())
        {
            return Err(Problem::new(
                403,
                "unknown_host",
                "the request is addressed to a host that this server is not",
            )
            .hint("use 127.0.0.1 or localhost, or add the name to server.hosts"));
        }
        let is_ours = |url: &str| {
            let from = authority_of(url);
            from.is_some_and(|from| {
                from.eq_ignore_ascii_case(authority) || self.origins.contains(&from.to_ascii_lowercase())
            })
        };
        let is_cross_site = match (text(&SEC_FETCH_SITE), text(&ORIGIN), text(&REFERER)) {
            (Some(site), _, _) if !matches!(site, "same-origin" | "none") => true,
            (_, Some(origin), _) => !is_ours(origin),
            (_, None, Some(page)) => !is_ours(page),
            (_, None, None) => false,
        };
        if is_cross_site {
            return Err(Problem::new(403, "cross_site", "the request was sent by a page of another site")
                .hint("call the API from a program, or from a page that this server serves"));
        }
        Ok(())
    }

    /// Asks for the token of the API, when there is one.
    fn check_token(&self, headers: &HeaderMap) -> Result<(), Problem> {
        match &self.token {
            Some(token) if !bearer(headers).is_some_and(|given| is_same(token, given)) => Err(unauthorized()),
            _ => Ok(()),
        }
    }

    /// Asks a writer for its key: in the header of the callback, or as `?token=` of the client's requests. The token of
    /// the API does as well. Hudi's default key never does, since no secret can have it.
    pub fn check_writer(&self, headers: &HeaderMap, token: Option<&str>) -> Result<(), Problem> {
        if self.token.is_none() && self.callback_key.is_none() {
            return Ok(());
        }
        let header = headers.get(CALLBACK_KEY).and_then(|v| v.to_str().ok());
        for given in [header, token, bearer(headers)].into_iter().flatten() {
            for secret in [&self.callback_key, &self.token].into_iter().flatten() {
                if is_same(secret, given) {
                    return Ok(());
                }
            }
        }
        let file = match self.callback_key {
            Some(_) => "server.callback_key_file",
            None => "server.token_file",
        };
        Err(Problem::new(401, "denied", "the writer's key is missing or wrong").hint(format!(
            "set hoodie.write.commit.callback.http.api.key of the writer (or ?token= of the client's URI) to what \
             stands in {file}"
        )))
    }
}

/// Returns the token of an `Authorization: Bearer` header.
#[must_use]
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn unauthorized() -> Problem {
    Problem::new(401, "denied", "the token is missing or wrong")
        .hint("send the content of server.token_file as a bearer token; `tms` reads it by --token-file or TMS_TOKEN")
}

/// Compares without telling by its time where two texts differ; their lengths are no secret.
fn is_same(secret: &SecretString, given: &str) -> bool {
    secret.expose_secret().as_bytes().ct_eq(given.as_bytes()).into()
}

fn host_of(authority: &str) -> &str {
    let host = authority.rsplit('@').next().unwrap_or_default();
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, _)) => v6,
        None => host.split(':').next().unwrap_or_default(),
    }
}

fn is_loopback_name(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns host and port of a URL.
pub fn authority_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    rest.split(['/', '?', '#']).next().filter(|a| !a.is_empty())
}

/// Asks for the token; for the API.
pub async fn token_layer(State(app): State<App>, request: Request, next: Next) -> Response {
    match app.guard.check_token(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> Guard {
        Guard { hosts: Some(["tms.local".to_owned()].into()), ..Guard::default() }
    }

    fn checked(guard: &Guard, headers: &[(&str, &str)]) -> Result<(), String> {
        let map: HeaderMap =
            headers.iter().map(|(k, v)| (k.parse::<HeaderName>().unwrap(), v.parse().unwrap())).collect();
        guard.check_source(&map, &Uri::from_static("/api/v1/instances")).map_err(|p| p.code().to_owned())
    }

    #[test]
    fn only_known_hosts_are_served_on_loopback() {
        let guard = loopback();
        for host in
            ["127.0.0.1:9091", "localhost", "LOCALHOST:1", "[::1]:9091", "tms.local:9091", "127.1.2.3"]
        {
            assert_eq!(checked(&guard, &[("host", host)]), Ok(()), "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example:9091", "localhost.evil.example", "", "10.0.0.1:9091"]
        {
            assert_eq!(checked(&guard, &[("host", host)]), Err("unknown_host".to_owned()), "{host}");
        }
        assert_eq!(checked(&guard, &[]), Err("unknown_host".to_owned()));
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let guard = loopback();
        let host = ("host", "127.0.0.1:9091");
        for (name, value) in [
            ("origin", "http://evil.example"),
            ("origin", "http://127.0.0.1:3000"),
            ("origin", "null"),
            ("referer", "http://127.0.0.1:3000/page"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(
                checked(&guard, &[host, (name, value)]),
                Err("cross_site".to_owned()),
                "{name} {value}"
            );
        }
        for (name, value) in [
            ("origin", "http://127.0.0.1:9091"),
            ("referer", "http://127.0.0.1:9091/x?y"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
        ] {
            assert_eq!(checked(&guard, &[host, (name, value)]), Ok(()), "{name} {value}");
        }
    }

    #[test]
    fn a_writers_key_is_asked_for_once_there_is_one() {
        let guard = Guard {
            token: Some("the-token".into()),
            callback_key: Some("the-key".into()),
            ..Guard::default()
        };
        let key = |value: &str| HeaderMap::from_iter([(CALLBACK_KEY, value.parse().unwrap())]);
        assert!(guard.check_writer(&key("the-key"), None).is_ok());
        assert!(guard.check_writer(&key("the-token"), None).is_ok());
        assert!(guard.check_writer(&HeaderMap::new(), Some("the-key")).is_ok());
        for (headers, token) in [
            (HeaderMap::new(), None),
            (key("hudi_write_commit_http_callback"), None),
            (key("the-ke"), Some("")),
            (key(""), Some("the-key2")),
        ] {
            assert!(guard.check_writer(&headers, token).is_err(), "{headers:?} {token:?}");
        }
        assert!(Guard::default().check_writer(&HeaderMap::new(), None).is_ok());
    }

    #[test]
    fn a_writers_key_opens_no_api() {
        let guard = Guard {
            token: Some("the-token".into()),
            callback_key: Some("the-key".into()),
            ..Guard::default()
        };
        let with = |value: &str| HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
        assert!(guard.check_token(&with("Bearer the-token")).is_ok());
        for value in ["Bearer the-key", "the-token", "Basic the-token", "Bearer "] {
            assert!(guard.check_token(&with(value)).is_err(), "{value}");
        }
        assert!(guard.check_token(&HeaderMap::new()).is_err());
    }
}
