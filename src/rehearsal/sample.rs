//! The sample repository: a little Python project whose test fails for a reason that one line explains.

use std::path::Path;
use std::process::{Command, Stdio};

/// The file with the fault.
pub const SOURCE: &str = "parcels.py";
/// The file with the test that shows it.
pub const TEST: &str = "test_parcels.py";

/// The faulty line, and what it must be.
pub(super) const WRONG: &str = "if grams < limit:";
pub(super) const RIGHT: &str = "if grams <= limit:";

const SOURCE_TEXT: &str = r#""""Prices of parcels, in cents."""

# The heaviest parcel of a class, in grams, and its price. A parcel of exactly that weight still belongs to the class.
CLASSES = [(500, 290), (2_000, 490), (10_000, 990)]


def price(grams):
    """The price of a parcel; too heavy a parcel is refused."""
    if grams <= 0:
        raise ValueError("a parcel weighs something")
    for limit, cents in CLASSES:
        if grams < limit:
            return cents
    raise ValueError("a parcel weighs at most 10 kg")
"#;

const TEST_TEXT: &str = r#"import unittest

from parcels import price


class Price(unittest.TestCase):
    def test_a_light_parcel_is_in_the_first_class(self):
        self.assertEqual(price(120), 290)

    def test_a_parcel_at_the_limit_belongs_to_the_lighter_class(self):
        self.assertEqual(price(500), 290)
        self.assertEqual(price(2_000), 490)

    def test_too_heavy_a_parcel_is_refused(self):
        with self.assertRaises(ValueError):
            price(10_001)


if __name__ == "__main__":
    unittest.main()
"#;

const README: &str = "# Parcels\n\nWhat a parcel costs, by its weight.\n\n## Test\n\n\
    ```sh\npython3 -m unittest -v\n```\n\nNothing needs to be installed.\n";

const AGENTS: &str = "# For Agents\n\n- Prices are whole cents, weights whole grams.\n\
    - Run the tests before and after a change. A test is right unless a person says otherwise.\n\
    - Change as little as the task needs.\n";

const IGNORED: &str = "__pycache__/\n";

/// The files of the repository, by path.
pub fn sample_files() -> Vec<(&'static str, &'static [u8])> {
    [
        ("AGENTS.md", AGENTS),
        ("README.md", README),
        (SOURCE, SOURCE_TEXT),
        (TEST, TEST_TEXT),
        (".gitignore", IGNORED),
    ]
    .map(|(path, text)| (path, text.as_bytes()))
    .to_vec()
}

/// Writes the files into an empty directory and commits them, where there is a `git`; without one they are only written.
/// Says whether they were committed.
pub fn create(root: &Path) -> std::io::Result<bool> {
    std::fs::create_dir_all(root)?;
    for (path, content) in sample_files() {
        std::fs::write(root.join(path), content)?;
    }
    let steps: [&[&str]; 3] = [
        &["init", "--quiet", "--initial-branch=main"],
        &["add", "--all"],
        &[
            "commit",
            "--quiet",
            "--no-gpg-sign",
            "--no-verify",
            "--message",
            "Price parcels by weight",
        ],
    ];
    for arguments in steps {
        match git(root, arguments) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Runs git with nobody's configuration.
fn git(root: &Path, arguments: &[&str]) -> std::io::Result<bool> {
    let person = [
        "-c",
        "user.name=Bazilion",
        "-c",
        "user.email=rehearsal@bazilion.invalid",
    ];
    let status = Command::new("git")
        .args(person)
        .args(arguments)
        .current_dir(root)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TEMPLATE_DIR", "")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faulty_line_is_in_the_source_once() {
        assert_eq!(SOURCE_TEXT.matches(WRONG).count(), 1);
        assert_eq!(SOURCE_TEXT.matches(RIGHT).count(), 0);
    }
}
