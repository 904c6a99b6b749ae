//! `headwater export`: writes every item of a container to a file or a pipe.

use crate::connect::{Connect, block_on};
use crate::output;
use crate::transfer::{Format, Object, Writer};
use anyhow::{Context, Result};
use clap::Args;
use headwater_client::{Container, Options, PageRequest};
use std::io::Write;
use std::path::Path;

const PAGE_ITEMS: u32 = 1000;

/// What to export, and where to.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// database/container, context:database/container or a URL
    address: String,
    /// File that ends in .json, .ndjson or .csv; `-` for standard output
    file: String,
    /// Format of the items [default: by the name of the file, NDJSON to standard output]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Keep the properties that the server adds: _rid, _etag, _ts and others
    #[arg(long)]
    with_system: bool,
    #[command(flatten)]
    connect: Connect,
}

/// The long help text of the command.
pub(crate) const HELP: &str = "\
Write every item of a container into a file

    headwater export shop/orders orders.ndjson
    headwater export prod:shop/orders - | gzip > orders.ndjson.gz
    headwater export shop/orders orders.csv

Numbers keep their digits and properties their order. The file appears when it is complete. Items that
change meanwhile may be in it in their old or new version; for one moment of everything, use `headwater backup`.

In a table, a cell that is JSON (1.5, true, {\"a\":1}) is that value, an empty one is a property that is
absent, and everything else is a text; texts that look like JSON are in quotes. `import` reads it so.";

/// Runs the command.
pub(crate) fn run(export: Export) -> Result<()> {
    let format = Format::of(export.format, &export.file)?;
    let container = export.connect.container(&export.address, Options::default())?;
    if export.file == "-" {
        let out = std::io::stdout().lock();
        let copied = block_on(copy(&container, Writer::new(out, format)?, &export));
        return match copied {
            Err(error) if !output::is_unread(&error) => Err(error),
            _ => Ok(()),
        };
    }
    let path = Path::new(&export.file);
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let out = tempfile::NamedTempFile::new_in(dir)
        .with_context(|| format!("cannot write to {}", dir.display()))?;
    let items = block_on(copy(&container, Writer::new(out.as_file(), format)?, &export))?;
    out.persist(path).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("{items} items in {}", path.display());
    Ok(())
}

async fn copy<W: Write>(
    container: &Container,
    mut writer: Writer<W>,
    export: &Export,
) -> Result<u64> {
    let progress = output::counter("items");
    let mut page = PageRequest { items: Some(PAGE_ITEMS), ..PageRequest::default() };
    let mut items = 0;
    loop {
        let read = container.list(&page).await.context("cannot read the items")?;
        for entry in &read.entries {
            let item = Object::parse(entry).context("the server sent an item that is none")?;
            let item = if export.with_system { item } else { item.without_system() };
            writer.write(&item)?;
            items += 1;
        }
        progress.set_position(items);
        page.continuation = read.continuation;
        if page.continuation.is_none() {
            break;
        }
    }
    writer.finish()?;
    progress.finish_and_clear();
    Ok(items)
}
