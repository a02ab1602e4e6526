//! `tms instance logs`

use clap::Args;

use crate::context::Context;
use crate::failure::Failure;
use crate::words;

/// Which log.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Id of the instance.
    #[arg(value_parser = words::instance_id)]
    id: String,
    /// Number of the attempt; the last one when absent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    attempt: Option<i32>,
    /// Bytes from the end, at most 1048576.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    bytes: Option<i32>,
}

/// Shows the end of a log.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let mut request = ctx.client.show_instance_logs().id(&arguments.id);
    if let Some(attempt) = arguments.attempt {
        request = request.attempt(attempt);
    }
    if let Some(bytes) = arguments.bytes {
        request = request.bytes(bytes);
    }
    let tail = request.send().await?.into_inner();
    ctx.out.result(&tail, |tail| {
        // Tabs and line ends belong to a log; nothing else of it may steer a terminal.
        tail.text.lines().map(|line| crate::show::plain(&line.replace('\t', "    ")) + "\n").collect()
    })?;
    if tail.is_cut {
        ctx.out.aside("this is only the end of the log");
    }
    if let Some(address) = &tail.address {
        ctx.out.aside(&format!("the whole log: {address}"));
    }
    Ok(())
}
