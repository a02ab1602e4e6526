//! Generates the client from the committed description of the API, so that it cannot differ from it.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets no CARGO_MANIFEST_DIR")?);
    let document = here.join("../../api/openapi-3.0.json");
    println!("cargo::rerun-if-changed={}", document.display());
    println!("cargo::rerun-if-changed=build.rs");
    let text = fs::read_to_string(&document)
        .map_err(|e| format!("cannot read {}: {e}; `cargo xtask openapi` writes it", document.display()))?;
    let api: openapiv3::OpenAPI = serde_json::from_str(&text)?;
    let mut settings = progenitor_impl::GenerationSettings::default();
    settings.with_interface(progenitor_impl::InterfaceStyle::Builder);
    let tokens = progenitor_impl::Generator::new(&settings).generate_tokens(&api)?;
    let code = prettyplease::unparse(&syn::parse2(tokens)?);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets no OUT_DIR")?);
    fs::write(out.join("client.rs"), code)?;
    Ok(())
}
