//! Lets the user who runs PostgreSQL pass through the directories above the data directory.
//!
//! Root may put its data below a directory that nobody else may enter. PostgreSQL does not run as root, so each such
//! directory gets one entry in its access list: that one user may pass, not list, not read. Nothing else changes.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;

use super::account::Account;
use crate::config::Obstacle;

const ACCESS_LIST: &str = "system.posix_acl_access";
const VERSION: u32 = 2;
const ANYBODY: u32 = u32::MAX;
const SEARCH: u16 = 1;

/// Tags of an access list's entries, in the order in which the kernel wants them.
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    tag: u16,
    id: u32,
    rights: u16,
}

/// Opens the way to `target` for `account`; says which directories were changed.
pub fn open_way(target: &Path, account: &Account) -> Result<Vec<PathBuf>, Obstacle> {
    let mut opened = Vec::new();
    for dir in target.ancestors().skip(1) {
        let meta = std::fs::metadata(dir).map_err(|e| Obstacle::file("Looking at", dir, &e))?;
        if may_pass(meta.mode(), meta.uid(), meta.gid(), account) {
            continue;
        }
        if grant(dir, meta.permissions().mode(), account)? {
            opened.push(dir.to_owned());
        }
    }
    Ok(opened)
}

fn may_pass(mode: u32, owner: u32, group: u32, account: &Account) -> bool {
    if owner == account.uid {
        return mode & 0o100 != 0;
    }
    if group == account.gid {
        return mode & 0o010 != 0;
    }
    mode & 0o001 != 0
}

/// Adds the entry. `false` when it was there already.
fn grant(dir: &Path, mode: u32, account: &Account) -> Result<bool, Obstacle> {
    let mut stored = [0_u8; 4096];
    let list = match rustix::fs::getxattr(dir, ACCESS_LIST, &mut stored[..]) {
        Ok(length) => decode(&stored[..length]),
        Err(_) => None,
    };
    let list = list.unwrap_or_else(|| of_mode(mode));
    let wider = with_search(&list, account.uid);
    if wider == list {
        return Ok(false);
    }
    rustix::fs::setxattr(dir, ACCESS_LIST, &encode(&wider), XattrFlags::empty()).map_err(|e| {
        Obstacle::new(
            format!(
                "The user {} runs PostgreSQL and may not pass through {}: {e}.",
                account.name,
                dir.display()
            ),
            format!(
                "Allow it: chmod o+x {}\n  Or choose another place with --data-dir.",
                dir.display()
            ),
        )
    })?;
    Ok(true)
}

fn of_mode(mode: u32) -> Vec<Entry> {
    let rights = |shift: u32| u16::try_from((mode >> shift) & 7).unwrap_or(0);
    [(USER_OBJ, 6), (GROUP_OBJ, 3), (OTHER, 0)]
        .map(|(tag, shift)| Entry {
            tag,
            id: ANYBODY,
            rights: rights(shift),
        })
        .into()
}

/// The list with search for one user. The mask is widened by search only, and then named entries that had search
/// behind the old mask would gain it; they are cut to the old mask first.
fn with_search(list: &[Entry], uid: u32) -> Vec<Entry> {
    let group = list
        .iter()
        .find(|e| e.tag == GROUP_OBJ)
        .map_or(0, |e| e.rights);
    let mask = list
        .iter()
        .find(|e| e.tag == MASK)
        .map_or(group, |e| e.rights);
    let mut wider: Vec<Entry> = list
        .iter()
        .filter(|e| e.tag != MASK && !(e.tag == USER && e.id == uid))
        .map(|e| match e.tag {
            USER | GROUP | GROUP_OBJ => Entry {
                rights: e.rights & mask,
                ..*e
            },
            _ => *e,
        })
        .collect();
    let had = list
        .iter()
        .find(|e| e.tag == USER && e.id == uid)
        .map_or(0, |e| e.rights & mask);
    wider.push(Entry {
        tag: USER,
        id: uid,
        rights: had | SEARCH,
    });
    wider.push(Entry {
        tag: MASK,
        id: ANYBODY,
        rights: mask | SEARCH,
    });
    wider.sort();
    wider
}

fn encode(list: &[Entry]) -> Vec<u8> {
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for entry in list {
        bytes.extend(entry.tag.to_le_bytes());
        bytes.extend(entry.rights.to_le_bytes());
        bytes.extend(entry.id.to_le_bytes());
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (version, entries) = bytes.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION {
        return None;
    }
    let entries = entries.chunks_exact(8).map(|e| Entry {
        tag: u16::from_le_bytes([e[0], e[1]]),
        rights: u16::from_le_bytes([e[2], e[3]]),
        id: u32::from_le_bytes([e[4], e[5], e[6], e[7]]),
    });
    Some(entries.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_directory_lets_one_user_pass_and_nobody_else() {
        let list = with_search(&of_mode(0o700), 101);
        let rights = |tag, id| {
            list.iter()
                .find(|e| e.tag == tag && e.id == id)
                .unwrap()
                .rights
        };
        assert_eq!(rights(USER, 101), SEARCH);
        assert_eq!(rights(GROUP_OBJ, ANYBODY), 0);
        assert_eq!(rights(OTHER, ANYBODY), 0);
        assert_eq!(rights(MASK, ANYBODY), SEARCH);
        assert_eq!(decode(&encode(&list)).unwrap(), list);
        assert_eq!(with_search(&list, 101), list);
    }

    #[test]
    fn an_entry_behind_the_old_mask_gains_nothing() {
        let before = vec![
            Entry {
                tag: USER_OBJ,
                id: ANYBODY,
                rights: 7,
            },
            Entry {
                tag: USER,
                id: 55,
                rights: 7,
            },
            Entry {
                tag: GROUP_OBJ,
                id: ANYBODY,
                rights: 5,
            },
            Entry {
                tag: MASK,
                id: ANYBODY,
                rights: 4,
            },
            Entry {
                tag: OTHER,
                id: ANYBODY,
                rights: 0,
            },
        ];
        let after = with_search(&before, 101);
        assert_eq!(after.iter().find(|e| e.id == 55).unwrap().rights, 4);
        assert_eq!(after.iter().find(|e| e.tag == GROUP_OBJ).unwrap().rights, 4);
    }
}
