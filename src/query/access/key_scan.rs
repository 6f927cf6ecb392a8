//! A walk over the items of a key range, in key order.

use sha2::{Digest, Sha256};

use super::{
    candidate::Candidate,
    resume::{RESUME_BYTES_MAX, ResumePoint, foreign_resume_point},
};
use crate::{
    expiry::ExpiryCheck,
    model::{epk::EpkRange, error::Result},
    shard::view::{ShardView, decode},
    store::{document::Header, engine::Scan, keys},
};

/// The first byte of a resume point of this walk: at a key, behind a key, or among keys that begin alike.
const AT: u8 = b'k';
const AFTER: u8 = b'K';
const AMONG_AT: u8 = b'p';
const AMONG_AFTER: u8 = b'P';

const DIGEST_BYTES: usize = 8;
/// Bytes of a key that a resume point carries; longer ids are told apart by a digest.
const KEY_BYTES_MAX: usize = RESUME_BYTES_MAX - 1 - DIGEST_BYTES;

pub struct KeyScan<'v> {
    scan: Scan<'v>,
    judge: ExpiryCheck,
    started: bool,
    resume: Option<KeyResume>,
    /// Of the entry under the cursor.
    header: Option<Header>,
    at_resume: bool,
}

struct KeyResume {
    kind: u8,
    key: Vec<u8>,
    digest: [u8; DIGEST_BYTES],
}

impl KeyResume {
    fn parse(point: &ResumePoint) -> Option<Self> {
        let (&kind, rest) = point.0.split_first()?;
        let (key, digest) = match kind {
            AT | AFTER => (rest, [0; DIGEST_BYTES]),
            AMONG_AT | AMONG_AFTER => {
                let (key, digest) = rest.split_last_chunk()?;
                (key, *digest)
            }
            _ => return None,
        };
        Some(Self {
            kind,
            key: key.to_vec(),
            digest,
        })
    }

    /// Whether this is the key at which the walk stopped.
    fn is_at(&self, key: &[u8]) -> bool {
        match self.kind {
            AT | AFTER => key == self.key,
            _ => key.starts_with(&self.key) && digest(key) == self.digest,
        }
    }

    /// Whether the key is one of several that only a digest tells apart.
    fn is_among(&self, key: &[u8]) -> bool {
        matches!(self.kind, AMONG_AT | AMONG_AFTER) && key.starts_with(&self.key)
    }
}

impl<'v> KeyScan<'v> {
    pub fn open(
        view: &'v ShardView,
        range: &EpkRange,
        resume: Option<&ResumePoint>,
    ) -> Result<Self> {
        let resume = resume
            .map(|point| KeyResume::parse(point).ok_or_else(foreign_resume_point))
            .transpose()?;
        let (start, to) = keys::document_range(&range.min, &range.max);
        let from = match &resume {
            Some(resume) => resume.key.as_slice().max(start.as_slice()),
            None => start.as_slice(),
        };
        Ok(Self {
            scan: view.engine.scan(from, &to),
            judge: view.expiry_check(),
            started: false,
            resume,
            header: None,
            at_resume: false,
        })
    }

    /// Moves to the next entry; `false` at the end.
    pub fn advance(&mut self) -> Result<bool> {
        if self.started {
            self.scan.advance();
        }
        self.started = true;
        self.at_resume = false;
        // Among keys that begin alike, those before the one that the point names were handed out before.
        while let Some(resume) = &self.resume {
            let Some((key, _)) = self.scan.entry()? else {
                break;
            };
            let is_at = resume.is_at(key);
            if is_at && matches!(resume.kind, AT | AMONG_AT) {
                self.at_resume = true;
            } else if is_at || resume.is_among(key) {
                let found = is_at;
                self.scan.advance();
                if found {
                    self.resume = None;
                }
                continue;
            }
            self.resume = None;
        }
        self.header = match self.scan.entry()? {
            Some((_, value)) => Some(decode(value)?.header),
            None => None,
        };
        Ok(self.header.is_some())
    }

    pub fn is_live(&self) -> bool {
        self.header
            .as_ref()
            .is_some_and(|header| self.judge.is_live(header.ts, header.ttl))
    }

    pub fn is_at_resume(&self) -> bool {
        self.at_resume
    }

    pub fn candidate(&self) -> Result<Candidate<'_>> {
        let entry = self.scan.entry()?.zip(self.header.as_ref());
        let ((key, value), header) = entry.ok_or_else(foreign_resume_point)?;
        Ok(Candidate {
            key,
            header,
            body: decode(value)?.into_borrowed_body(),
            matches: false,
        })
    }

    pub fn resume_at(&self) -> ResumePoint {
        self.point(AT, AMONG_AT)
    }

    pub fn resume_after(&self) -> ResumePoint {
        self.point(AFTER, AMONG_AFTER)
    }

    fn point(&self, whole: u8, among: u8) -> ResumePoint {
        let key = match self.scan.entry() {
            Ok(Some((key, _))) => key,
            _ => &[],
        };
        let mut bytes = Vec::with_capacity(key.len() + 1);
        match key.get(..KEY_BYTES_MAX) {
            Some(prefix) if key.len() > KEY_BYTES_MAX => {
                bytes.push(among);
                bytes.extend_from_slice(prefix);
                bytes.extend_from_slice(&digest(key));
            }
            _ => {
                bytes.push(whole);
                bytes.extend_from_slice(key);
            }
        }
        ResumePoint(bytes)
    }
}

fn digest(key: &[u8]) -> [u8; DIGEST_BYTES] {
    let whole = Sha256::digest(key);
    let mut short = [0; DIGEST_BYTES];
    short.copy_from_slice(&whole[..DIGEST_BYTES]);
    short
}
