//! How a connection is made: address, token, limits.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use crate::Client;

/// Time to reach the server.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Time for a whole answer; the server itself gives up after 60 s.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(65);
/// Header in which a caller says who it is; a label for the history.
const USER: HeaderName = HeaderName::from_static("tms-user");

/// Where the server is and who asks.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    /// Address, such as `http://127.0.0.1:9091`.
    pub url: String,
    /// Token of the API.
    pub token: Option<SecretString>,
    /// Name for the history of what is changed.
    pub user: Option<String>,
}

/// Why no client could be made.
#[derive(Debug)]
pub enum ConnectError {
    /// The address is no http address.
    Url,
    /// The token holds what no header can carry.
    Token,
    /// The HTTP library refused.
    Library(reqwest::Error),
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url => {
                f.write_str("the server's address is no http address, such as http://127.0.0.1:9091")
            }
            Self::Token => f.write_str("the token holds characters that no header can carry"),
            Self::Library(e) => write!(f, "cannot make an HTTP client: {e}"),
        }
    }
}

impl std::error::Error for ConnectError {}

impl Connection {
    /// Makes a client. Nothing is sent yet.
    ///
    /// # Errors
    /// When address or token cannot be used.
    pub fn client(&self) -> Result<Client, ConnectError> {
        let url = self.url.trim_end_matches('/');
        if reqwest::Url::parse(url).map_or(true, |u| !matches!(u.scheme(), "http" | "https") || !u.has_host())
        {
            return Err(ConnectError::Url);
        }
        let mut headers = HeaderMap::new();
        if let Some(token) = &self.token {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
                .map_err(|_| ConnectError::Token)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        // A name with letters that no header can carry is left out: it is a label only.
        if let Some(user) = self.user.as_deref().and_then(|u| HeaderValue::from_str(u).ok()) {
            headers.insert(USER, user);
        }
        // A second client of this process finds it installed.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIME_MAX)
            .timeout(ANSWER_TIME_MAX)
            .default_headers(headers)
            // A redirect would carry the token to an address that nobody named.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(ConnectError::Library)?;
        Ok(Client::new_with_client(url, http))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_addresses_are_taken() {
        let client = |url: &str| Connection { url: url.to_owned(), ..Connection::default() }.client();
        assert!(client("http://127.0.0.1:9091/").is_ok());
        for url in ["", "127.0.0.1:9091", "ftp://h", "http://"] {
            assert!(client(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        let connection = Connection { url: "http://h".to_owned(), token: Some("hush".into()), user: None };
        assert!(!format!("{connection:?}").contains("hush"));
    }
}
