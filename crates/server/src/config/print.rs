//! Shows a configuration as a file that could be read again, with secrets struck.

use crate::config::Config;
use crate::config::engines::EngineConfig;
use crate::redact;

/// Returns the configuration as TOML.
///
/// # Errors
/// When it cannot be written as TOML, which no configuration that was read should be.
pub fn to_toml(config: &Config) -> Result<String, toml::ser::Error> {
    let mut shown = config.clone();
    shown.hudi.options = redact::options(&shown.hudi.options);
    for engine in shown.engines.values_mut() {
        if let EngineConfig::SparkSubmit(spark) = engine {
            spark.conf = redact::options(&spark.conf);
        }
    }
    toml::to_string(&shown)
}
