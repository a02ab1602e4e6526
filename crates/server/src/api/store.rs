//! The store: a copy of it.

use std::io;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use utoipa::ToSchema;

use crate::api::error::{ApiError, ApiErrors};
use crate::api::state::App;

/// Media type of a copy.
pub const COPY_TYPE: &str = "application/octet-stream";

/// A copy of a store.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub struct StoreCopy(#[allow(dead_code, reason = "it describes the body, which is a stream")] Vec<u8>);

/// Copies the store as it is now, for `tms-server backup`.
///
/// One copy at a time; one whose reader takes nothing for a minute is cut, which its end tells.
#[utoipa::path(get, path = "/api/v1/store/backup", tag = "store", responses(
    (status = 200, description = "The copy; it is whole when it ends in its own check sum", body = inline(StoreCopy),
        content_type = "application/octet-stream"),
    ApiErrors,
))]
pub async fn back_up_store(State(app): State<App>) -> Result<Response, ApiError> {
    let pieces = app.managers.nodes.begin_copy().await?;
    let pieces = futures::stream::unfold(pieces, async |mut pieces| {
        let piece = pieces.recv().await?.map(Bytes::from).map_err(|error| {
            tracing::error!(error = error.chain(), "A copy of the store came to no end.");
            io::Error::other("the store cannot be read")
        });
        Some((piece, pieces))
    });
    let mut response = Body::from_stream(pieces.boxed()).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(COPY_TYPE));
    Ok(response)
}
