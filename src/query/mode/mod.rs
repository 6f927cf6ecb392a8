//! The three ways to a page: rows as they are found, the first ones in order, or all of them first.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    access::Candidate,
    meter::QueryMeter,
    position::{OrderedRow, RowExpiry, RowOrder, RowPosition, RowStanding},
    rows::Rows,
    token::first_bytes,
    top::Top,
};
use crate::{
    model::error::Result,
    router::actor::PageBounds,
    sql::{
        Execution, FinishedRow, Flow, Guard, ItemReader, ItemRows, Query, Wanted, canonical_key,
    },
};

/// Items that are looked at behind a full page, so that a last page is seldom followed by an empty one.
const PEEKED_MAX: usize = 256;
/// Finished rows after which the memory is looked at again.
const ROWS_PER_CHECK: usize = 256;

/// Which of all rows the client wants, by OFFSET, LIMIT and TOP: `first..last`.
#[derive(Clone, Copy, Debug)]
pub struct RowWindow {
    pub first: u64,
    pub last: u64,
}

impl RowWindow {
    pub fn of(query: &Query) -> Self {
        let (first, last) = query.offset_limit().map_or((0, u64::MAX), |window| {
            (window.offset, window.offset.saturating_add(window.limit))
        });
        let last = last.min(query.top().unwrap_or(u64::MAX));
        Self {
            first: first.min(last),
            last,
        }
    }
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOutcome {
    More,
    /// The page is full; the next one begins with this item, behind so many of its rows.
    Full {
        within: u64,
    },
    /// Nothing more of this part matters: its items come in order.
    PartDone,
    /// Nothing more matters at all.
    AllDone,
}

/// How an item is read for a query.
pub struct RowReader<'q> {
    query: &'q Query,
    rows: ItemRows<'q>,
    returns_items: bool,
    /// What the conditions look at, or all that a row consists of.
    items: ItemReader<'q>,
    /// The item with all that its row consists of.
    whole_items: ItemReader<'q>,
}

impl<'q> RowReader<'q> {
    pub fn new(query: &'q Query, meter: &Arc<QueryMeter>) -> Self {
        let returns_items = query.returns_items();
        let whole = if returns_items {
            &Wanted::All
        } else {
            query.wanted()
        };
        Self {
            query,
            rows: query.item_rows().guarded(guard(meter)),
            returns_items,
            items: ItemReader::new(query.wanted()).guarded(guard(meter)),
            whole_items: ItemReader::new(whole).guarded(guard(meter)),
        }
    }

    fn matches(&mut self, item: &Candidate<'_>) -> Result<bool> {
        if item.matches || !self.query.filters() {
            return Ok(true);
        }
        self.rows.matches(self.items.read(item.body)?)
    }
}

fn guard(meter: &Arc<QueryMeter>) -> Arc<dyn Guard> {
    Arc::clone(meter) as Arc<dyn Guard>
}

fn life(item: &Candidate<'_>, part: usize) -> Option<RowExpiry> {
    Some(RowExpiry {
        part,
        ts: item.header.ts,
        ttl: item.header.ttl,
    })
}

/// Rows leave as they are found.
pub struct Streaming {
    pub rows: Rows,
    /// Of all rows, those of earlier pages and those that OFFSET skips included.
    pub found: u64,
    window: RowWindow,
    bounds: PageBounds,
    /// Rows of the item with this ordinal that were handed out before.
    handed_out: (u64, u64),
    /// The item with which the next page begins, and how many of its rows are handed out.
    pub stopped_within: Option<(u64, u64)>,
    peeked: usize,
}

enum RowOffer {
    Take,
    Skip,
    Full,
    Done,
}

impl Streaming {
    pub fn new(window: RowWindow, bounds: PageBounds, found: u64, handed_out: (u64, u64)) -> Self {
        Self {
            rows: Rows::default(),
            found,
            window,
            bounds,
            handed_out,
            stopped_within: None,
            peeked: 0,
        }
    }

    pub fn is_full(&self) -> bool {
        self.rows.len() >= self.bounds.items_max || self.rows.bytes() >= self.bounds.bytes_max
    }

    pub fn is_done(&self) -> bool {
        self.found >= self.window.last
    }

    fn offer(&self, bytes: usize) -> RowOffer {
        if self.is_done() {
            RowOffer::Done
        } else if self.found < self.window.first {
            RowOffer::Skip
        } else if self.is_full()
            || (!self.rows.is_empty() && self.rows.bytes() + bytes > self.bounds.bytes_max)
        {
            RowOffer::Full
        } else {
            RowOffer::Take
        }
    }

    pub fn take(
        &mut self,
        reader: &mut RowReader<'_>,
        item: &Candidate<'_>,
        part: usize,
    ) -> Result<ItemOutcome> {
        if self.is_full() {
            self.peeked += 1;
            if self.peeked > PEEKED_MAX {
                return Ok(ItemOutcome::Full { within: 0 });
            }
        }
        let before = match self.handed_out {
            (ordinal, within) if ordinal == item.header.ordinal => within,
            _ => 0,
        };
        if reader.returns_items {
            if before > 0 || !reader.matches(item)? {
                return Ok(ItemOutcome::More);
            }
            match self.offer(item.body.len()) {
                RowOffer::Done => return Ok(ItemOutcome::AllDone),
                RowOffer::Full => return Ok(ItemOutcome::Full { within: 0 }),
                RowOffer::Skip => {}
                RowOffer::Take => self.rows.push(item.body, life(item, part)),
            }
            self.found += 1;
        } else {
            let value = reader.items.read(item.body)?;
            let mut within = 0;
            let mut end = None;
            reader.rows.each(value, &mut |row| {
                let Some(row) = row.value()? else {
                    return Ok(Flow::More);
                };
                if within >= before {
                    let taken = match self.offer(0) {
                        RowOffer::Done => Some(ItemOutcome::AllDone),
                        RowOffer::Full => Some(ItemOutcome::Full { within }),
                        RowOffer::Skip => None,
                        RowOffer::Take => {
                            let fits = self.rows.push_value(
                                &row,
                                life(item, part),
                                self.bounds.bytes_max,
                            )?;
                            (!fits).then_some(ItemOutcome::Full { within })
                        }
                    };
                    if taken.is_some() {
                        end = taken;
                        return Ok(Flow::Enough);
                    }
                    self.found += 1;
                }
                within += 1;
                Ok(Flow::More)
            })?;
            if let Some(end) = end {
                return Ok(end);
            }
        }
        Ok(if self.is_done() {
            ItemOutcome::AllDone
        } else {
            ItemOutcome::More
        })
    }
}

/// A page of rows that have an order.
pub struct SortedPage {
    pub rows: Rows,
    /// Where the next page begins.
    pub more: Option<RowPosition>,
    /// Rows found up to the end of this page.
    pub found: u64,
}

/// What a page of ordered rows takes, given what was handed out before.
#[derive(Clone, Copy, Debug)]
pub struct PageWants {
    /// Rows that the position does not tell from those that follow.
    among: u64,
    /// Rows that OFFSET still skips.
    skipped: u64,
    pub rows: u64,
    found: u64,
    last: u64,
    bounds: PageBounds,
}

impl PageWants {
    pub fn new(
        window: RowWindow,
        bounds: PageBounds,
        found: u64,
        after: Option<&RowPosition>,
    ) -> Self {
        let begin = window.first.max(found);
        Self {
            among: after.map_or(0, RowPosition::handed_out_among),
            skipped: window.first.saturating_sub(found),
            rows: window
                .last
                .saturating_sub(begin)
                .min(bounds.items_max as u64),
            found,
            last: window.last,
            bounds,
        }
    }

    /// Rows that matter, in all.
    fn in_all(&self) -> usize {
        let all = self.among.saturating_add(self.skipped);
        usize::try_from(all.saturating_add(self.rows)).unwrap_or(usize::MAX)
    }

    /// Cuts the page out of sorted rows, of which none is before `after`.
    fn page(
        &self,
        rows: &[OrderedRow],
        refused: bool,
        after: Option<&RowPosition>,
        order: &RowOrder,
    ) -> SortedPage {
        let among = rows
            .iter()
            .take(usize::try_from(self.among).unwrap_or(usize::MAX))
            .take_while(|row| {
                after.is_some_and(|after| after.standing(row, order) == RowStanding::Among)
            })
            .count();
        let rest = rows.get(among..).unwrap_or_default();
        let skipped = rest
            .len()
            .min(usize::try_from(self.skipped).unwrap_or(usize::MAX));
        let mut page = Rows::default();
        for row in rest
            .iter()
            .skip(skipped)
            .take(usize::try_from(self.rows).unwrap_or(usize::MAX))
        {
            if !page.is_empty() && page.bytes() + row.json.len() > self.bounds.bytes_max {
                break;
            }
            page.push(&row.json, row.life);
        }
        let consumed = rest.get(..skipped + page.len()).unwrap_or(rest);
        let found = self.found.saturating_add(consumed.len() as u64);
        let more = (refused || consumed.len() < rest.len()) && found < self.last;
        SortedPage {
            more: more
                .then(|| RowPosition::behind(consumed, after, order))
                .flatten(),
            rows: page,
            found,
        }
    }
}

/// The first rows in order.
pub struct Ordered {
    top: Top,
    after: Option<RowPosition>,
    wants: PageWants,
}

impl Ordered {
    pub fn new(order: RowOrder, wants: PageWants, after: Option<RowPosition>) -> Self {
        // Rows that are skipped count for nothing in the bytes of a page.
        let bytes_max = if wants.among + wants.skipped == 0 {
            wants.bounds.bytes_max
        } else {
            usize::MAX
        };
        Self {
            top: Top::new(Arc::new(order), wants.in_all(), bytes_max),
            after,
            wants,
        }
    }

    pub fn after(&self) -> Option<&RowPosition> {
        self.after.as_ref()
    }

    pub fn held_bytes(&self) -> usize {
        self.top.held_bytes()
    }

    /// Takes an item; `sorted` says that those after it come later in the order.
    pub fn take(
        &mut self,
        reader: &mut RowReader<'_>,
        item: &Candidate<'_>,
        part: usize,
        sorted: bool,
    ) -> Result<ItemOutcome> {
        let value = reader.items.read(item.body)?;
        let mut within = 0;
        let mut too_late = false;
        let Self { top, after, .. } = self;
        reader.rows.each(value, &mut |found| {
            let mut row = OrderedRow {
                keys: found.keys()?,
                tie: item.header.ordinal,
                within,
                json: Vec::new(),
                life: life(item, part),
            };
            within += 1;
            let before = after
                .as_ref()
                .is_some_and(|after| after.standing(&row, top.order()) == RowStanding::Before);
            if before {
                return Ok(Flow::More);
            }
            if !top.admits(&row) {
                too_late = sorted;
                return Ok(if sorted { Flow::Enough } else { Flow::More });
            }
            if reader.returns_items {
                row.json = item.body.to_vec();
            } else {
                match found.value()? {
                    None => return Ok(Flow::More),
                    Some(value) => row.json = value.to_string().into_bytes(),
                }
            }
            top.insert(row);
            Ok(Flow::More)
        })?;
        Ok(if too_late {
            ItemOutcome::PartDone
        } else {
            ItemOutcome::More
        })
    }

    pub fn finish(self) -> SortedPage {
        let Self { top, after, wants } = self;
        let order = top.order().clone();
        let (rows, refused) = top.finish();
        wants.page(&rows, refused, after.as_ref(), &order)
    }
}

/// All items are seen before the first row is known.
pub struct Whole {
    pub execution: Execution,
    /// Whether TOP and OFFSET LIMIT have cut the rows already.
    cut: bool,
    after: Option<RowPosition>,
}

/// What came of seeing all items.
pub enum WholeOutcome {
    Page(SortedPage),
    /// The rows do not fit one page: they are needed uncut.
    Again,
}

impl Whole {
    /// Rows that certainly fit one page in number are cut at once, and may stop the walk early.
    pub fn new(
        query: &Query,
        window: RowWindow,
        bounds: PageBounds,
        after: Option<RowPosition>,
        meter: &Arc<QueryMeter>,
    ) -> Self {
        let cut = after.is_none() && window.last <= bounds.items_max as u64;
        if cut {
            Self {
                execution: query.start().guarded(guard(meter)),
                cut,
                after,
            }
        } else {
            Self::uncut(query, after, meter)
        }
    }

    pub fn uncut(query: &Query, after: Option<RowPosition>, meter: &Arc<QueryMeter>) -> Self {
        Self {
            execution: query.start_uncut().guarded(guard(meter)),
            cut: false,
            after,
        }
    }

    pub fn after(&self) -> Option<&RowPosition> {
        self.after.as_ref()
    }

    pub fn take(
        &mut self,
        reader: &mut RowReader<'_>,
        item: &Candidate<'_>,
    ) -> Result<ItemOutcome> {
        let flow = self.execution.push(reader.whole_items.read(item.body)?)?;
        Ok(match flow {
            Flow::More => ItemOutcome::More,
            Flow::Enough => ItemOutcome::AllDone,
        })
    }

    /// A page of the rows. All of them in the order in which they were found, if they fit; otherwise in an order that does not depend
    /// on what is found first, so that the next page can go on behind it.
    pub fn finish(
        self,
        order: &RowOrder,
        window: RowWindow,
        wants: PageWants,
        meter: &QueryMeter,
    ) -> Result<WholeOutcome> {
        let Self {
            execution,
            cut,
            after,
        } = self;
        let rows = execution.finish_rows()?;
        if after.is_none() {
            let (first, last) = if cut {
                (0, usize::MAX)
            } else {
                let place = |at| usize::try_from(at).unwrap_or(usize::MAX);
                (place(window.first), place(window.last))
            };
            let wanted = rows.get(first.min(rows.len())..last.min(rows.len()));
            if let Some(page) = all_on_one_page(wanted.unwrap_or_default(), wants.bounds)? {
                return Ok(WholeOutcome::Page(page));
            }
        }
        if cut {
            return Ok(WholeOutcome::Again);
        }
        let mut rows = with_ties(rows, order, meter)?;
        if let Some(after) = &after {
            rows.retain(|(row, _)| after.standing(row, order) != RowStanding::Before);
        }
        let refused = rows.len() > wants.in_all();
        rows.truncate(wants.in_all());
        let rows: Vec<OrderedRow> = rows
            .into_iter()
            .enumerate()
            .map(|(at, (row, value))| {
                check_some(meter, at)?;
                Ok(OrderedRow {
                    json: value.to_string().into_bytes(),
                    ..row
                })
            })
            .collect::<Result<_>>()?;
        Ok(WholeOutcome::Page(wants.page(
            &rows,
            refused,
            after.as_ref(),
            order,
        )))
    }
}

/// All rows, unless they are too many or too large for a page.
fn all_on_one_page(rows: &[FinishedRow], bounds: PageBounds) -> Result<Option<SortedPage>> {
    if rows.len() > bounds.items_max {
        return Ok(None);
    }
    let mut page = Rows::default();
    for row in rows {
        if !page.push_value(&row.value, None, bounds.bytes_max)? {
            return Ok(None);
        }
    }
    Ok(Some(SortedPage {
        found: rows.len() as u64,
        rows: page,
        more: None,
    }))
}

/// Sorts rows by their keys and then by what they are; equal rows are counted.
fn with_ties(
    rows: Vec<FinishedRow>,
    order: &RowOrder,
    meter: &QueryMeter,
) -> Result<Vec<(OrderedRow, Value)>> {
    let mut scratch = Vec::new();
    meter.check_memory(rows.len().saturating_mul(size_of::<(OrderedRow, Value)>()))?;
    let mut tied = rows
        .into_iter()
        .enumerate()
        .map(|(at, FinishedRow { keys, value })| {
            check_some(meter, at)?;
            scratch.clear();
            canonical_key(Some(&value), &mut scratch);
            let row = OrderedRow {
                keys,
                tie: first_bytes(&Sha256::digest(&scratch)),
                within: 0,
                json: Vec::new(),
                life: None,
            };
            Ok((row, value))
        })
        .collect::<Result<Vec<_>>>()?;
    tied.sort_by(|(a, _), (b, _)| order.compare(a, b));
    for at in 1..tied.len() {
        let (before, rest) = tied.split_at_mut(at);
        if let (Some((before, _)), Some((row, _))) = (before.last(), rest.first_mut())
            && order.is_same_place(before, row)
        {
            row.within = before.within + 1;
        }
    }
    Ok(tied)
}

/// Looks at the memory once in a while.
fn check_some(meter: &QueryMeter, at: usize) -> Result<()> {
    match at % ROWS_PER_CHECK {
        0 => meter.check_memory(0),
        _ => Ok(()),
    }
}
