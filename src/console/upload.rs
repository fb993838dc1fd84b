//! Files on their way to the server: checked here before anything is sent, then streamed.
//!
//! - Only regular files, at most 16, at most 25 MiB together; a breach is refused whole.
//! - What was measured is what is sent: a file that shrinks meanwhile breaks the request off, one that grows is cut
//!   at its first length.

use std::path::{Path, PathBuf};

use futures_util::TryStreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::multipart::{Form, Part};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use super::client::Body;
use super::exit::{Exit, Failure};
use super::output::{is_watched, visible_line};
use crate::limits;

/// A file that goes along with a request.
#[derive(Debug, Clone)]
pub struct Upload {
    /// Absolute, so that a retry from another directory finds the same file.
    pub path: PathBuf,
    name: String,
    mime_type: String,
    length: u64,
}

/// The files of a request, in order, within the limits.
pub fn inspect(paths: &[PathBuf]) -> Result<Vec<Upload>, Failure> {
    if paths.len() > limits::CLI_FILES_MAX {
        return Err(over(format!(
            "{} files: a request carries at most {}.",
            paths.len(),
            limits::CLI_FILES_MAX
        )));
    }
    let uploads = paths
        .iter()
        .map(|path| look_at(path))
        .collect::<Result<Vec<_>, _>>()?;
    let total: u64 = uploads.iter().map(|upload| upload.length).sum();
    if total > limits::CLI_FILES_BYTES_MAX {
        return Err(over(format!(
            "The files hold {total} bytes together: a request carries at most {}.",
            limits::CLI_FILES_BYTES_MAX
        )));
    }
    Ok(uploads)
}

fn over(message: String) -> Failure {
    Failure::local(Exit::Limit, "limit", format!("{message} Nothing was sent."))
}

fn look_at(path: &Path) -> Result<Upload, Failure> {
    let shown = visible_line(&path.display().to_string());
    let unusable = |why: &str| Failure::usage(format!("{shown}: {why}. Nothing was sent."));
    let metadata = std::fs::metadata(path).map_err(|error| unusable(&error.to_string()))?;
    if !metadata.is_file() {
        return Err(unusable("not a regular file"));
    }
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| unusable("its name is not UTF-8 text"))?;
    let absolute = std::path::absolute(path).map_err(|error| unusable(&error.to_string()))?;
    Ok(Upload {
        path: absolute,
        name: name.to_owned(),
        mime_type: mime_guess::from_path(name)
            .first_or_octet_stream()
            .essence_str()
            .to_owned(),
        length: metadata.len(),
    })
}

/// The form of a request: its JSON first, then each file as a stream, with a bar for whoever watches.
pub async fn body(request: &Value, uploads: &[Upload]) -> Result<Body, Failure> {
    let json = Part::text(request.to_string());
    let json = json.mime_str("application/json").map_err(unsendable)?;
    let bytes = uploads.iter().map(|upload| upload.length).sum();
    let bar = progress(bytes);
    let mut form = Form::new().part("request", json);
    for upload in uploads {
        form = form.part("file", part(upload, bar.clone()).await?);
    }
    Ok(Body::Form { form, bytes })
}

async fn part(upload: &Upload, bar: ProgressBar) -> Result<Part, Failure> {
    let file = tokio::fs::File::open(&upload.path).await.map_err(|error| {
        let shown = visible_line(&upload.path.display().to_string());
        Failure::usage(format!("{shown}: {error}. Nothing was sent."))
    })?;
    let bytes = ReaderStream::new(file.take(upload.length));
    let counted = bytes.inspect_ok(move |chunk| bar.inc(chunk.len() as u64));
    let part = Part::stream_with_length(reqwest::Body::wrap_stream(counted), upload.length);
    part.file_name(upload.name.clone())
        .mime_str(&upload.mime_type)
        .map_err(unsendable)
}

fn unsendable(error: reqwest::Error) -> Failure {
    Failure::usage(format!("A part of the request can not be sent: {error}"))
}

fn progress(total: u64) -> ProgressBar {
    if !is_watched() || total < limits::CLI_PROGRESS_FROM {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    let template = "{bytes} of {total_bytes} {bar:30} {eta}";
    match ProgressStyle::with_template(template) {
        Ok(style) => bar
            .with_style(style)
            .with_finish(indicatif::ProgressFinish::AndClear),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn scratch(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("bazilion-upload-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a scratch directory");
        path
    }

    #[test]
    fn q197_more_than_sixteen_paths_are_refused_here() {
        let paths = vec![PathBuf::from("a"); 17];
        let failure = inspect(&paths).expect_err("too many");
        assert_eq!(failure.exit(), Exit::Limit);
    }

    #[test]
    fn q197_files_are_summed_to_the_byte() {
        let directory = scratch("sum");
        let [one, two] = ["one.bin", "two.bin"].map(|name| directory.join(name));
        fs::File::create(&one)
            .and_then(|f| f.set_len(limits::CLI_FILES_BYTES_MAX))
            .expect("a sparse file");
        fs::write(&two, b"").expect("an empty file");
        assert!(inspect(&[one.clone(), two.clone()]).is_ok());
        fs::write(&two, b"x").expect("one byte");
        let failure = inspect(&[one, two]).expect_err("one byte too many");
        assert_eq!(failure.exit(), Exit::Limit);
        fs::remove_dir_all(directory).expect("cleared away");
    }

    #[test]
    fn a_directory_is_no_file() {
        let failure = inspect(&[std::env::temp_dir()]).expect_err("a directory");
        assert_eq!(failure.exit(), Exit::Usage);
    }
}
