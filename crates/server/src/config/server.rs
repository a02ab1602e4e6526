//! Where the server listens and who may talk to it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the server listens and who may talk to it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Address and port of the API. Any address that is not loopback needs `server.token_file` and `storage.roots`.
    /// Port 0 takes a free one.
    #[schemars(extend("format" = "socket-address"))]
    pub listen: String,
    /// Address that jobs and other nodes reach this server at. Unset: `http://<listen>`. Must be set when `listen`
    /// names no concrete address (0.0.0.0, ::).
    #[schemars(extend("format" = "url", "x-example" = "http://tms.example:9091"))]
    pub advertise_url: Option<String>,
    /// File that holds the token of the API. Unset: no login, which is allowed on loopback only.
    #[schemars(extend("format" = "path", "x-example" = "/etc/tms/token"))]
    pub token_file: Option<PathBuf>,
    /// File that holds what writers send as `hoodie.write.commit.callback.http.api.key` (or as `?token=` with the
    /// requests of Hudi's client). Hudi's default key is refused, since everybody knows it. Unset: on loopback nothing
    /// is asked, elsewhere writers send the token of the API.
    #[schemars(extend("format" = "path", "x-example" = "/etc/tms/callback-key"))]
    pub callback_key_file: Option<PathBuf>,
    /// Further host names that requests may be addressed to while the server listens on loopback. Other names are
    /// refused, so that a web page cannot reach the server through a name of its own.
    #[schemars(extend("x-item" = "a host name"))]
    pub hosts: Vec<String>,
    /// Name of this node. Unset: host name and port.
    #[schemars(extend("format" = "name", "x-example" = "tms-1"))]
    pub node_name: Option<String>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:9091".to_owned(),
            advertise_url: None,
            token_file: None,
            callback_key_file: None,
            hosts: Vec::new(),
            node_name: None,
        }
    }
}
