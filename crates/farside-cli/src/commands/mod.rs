//! What each verb does: one request or a few, and how the answer is shown.

mod check;
mod context;
mod generate;
mod mirror;
mod peer;
mod pool;
mod site;
mod snapshot;
mod support;
mod volume;

use farside_api::{ErrorBody, Site};

use crate::arguments::{Arguments, Config, Noun};
use crate::client::Client;
use crate::output;
use context::Context;
pub use context::Failed;

/// Runs one command.
pub async fn run(arguments: Arguments) -> Result<(), Failed> {
    let json = arguments.connection.json;
    let context =
        || Ok::<_, ErrorBody>(Context { client: Client::new(arguments.connection.socket_path())?, json });
    match arguments.noun {
        Noun::Pool(verb) => pool::run(context()?, verb).await?,
        Noun::Volume(verb) => volume::run(context()?, verb).await?,
        Noun::Snapshot(verb) => snapshot::run(context()?, verb).await?,
        Noun::Peer(verb) => peer::run(context()?, verb).await?,
        Noun::Site(verb) => site::run(context()?, verb).await?,
        Noun::Mirror(verb) => mirror::run(context()?, verb).await?,
        Noun::Config(Config::Show) => config_show(context()?).await?,
        Noun::SupportBundle { output } => {
            support::run(context()?, output, &arguments.connection.data_dir_path()).await?;
        }
        Noun::Completions { shell } => generate::completions(shell),
        Noun::Man { to } => generate::man(to.as_deref())?,
    }
    Ok(())
}

async fn config_show(context: Context) -> Result<(), ErrorBody> {
    let site: Site = context.client.get(&["site"]).await?;
    context.show(&site, |site| {
        output::details(&[
            ("name", site.name.clone()),
            ("id", site.id.clone()),
            ("version", site.version.clone()),
            ("data directory", site.data_dir.clone()),
            ("peers", site.peer_address.clone().unwrap_or_else(|| String::from("off"))),
            ("http", site.http_address.clone().unwrap_or_else(|| String::from("off"))),
            ("nbd socket", site.nbd_socket.clone()),
        ])
    });
    Ok(())
}
