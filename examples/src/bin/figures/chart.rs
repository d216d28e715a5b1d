//! A timeline: lanes of bars and marks over one time axis, as text.

use std::fmt::Write as _;

/// The meaning of a bar.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Tokens that this version wrote, or the time when the version was installed.
    Version(u64),
    /// A training step.
    Training,
    /// Time spent in the buffer, or before a first token.
    Waiting,
    /// A publication, while generation pauses.
    Pause,
}

/// A period of time, in milliseconds.
#[derive(Clone, Debug)]
pub struct Bar {
    pub from: u64,
    pub to: u64,
    pub paint: Paint,
    pub label: String,
}

/// The sign of a mark.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    Consumed,
    Excluded,
    /// No sign: the text alone.
    Note,
}

/// A moment, in milliseconds.
#[derive(Clone, Debug)]
pub struct Mark {
    pub at: u64,
    pub sign: Sign,
    pub label: String,
}

/// A row of a timeline.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    pub label: String,
    pub bars: Vec<Bar>,
    pub marks: Vec<Mark>,
    /// A title for the lanes below it.
    pub heading: bool,
}

/// A figure.
pub struct Chart {
    /// The file's name without its extension.
    pub name: &'static str,
    pub title: String,
    /// One or two sentences about what the figure shows.
    pub description: String,
    /// The milliseconds that the axis shows.
    pub from: u64,
    pub to: u64,
    pub lanes: Vec<Lane>,
    pub legend: Vec<(Paint, &'static str)>,
    /// Notes below the figure.
    pub notes: Vec<String>,
}

impl Lane {
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), ..Self::default() }
    }

    pub fn heading(label: impl Into<String>) -> Self {
        Self { label: label.into(), heading: true, ..Self::default() }
    }

    pub fn bar(&mut self, from: u64, to: u64, paint: Paint, label: impl Into<String>) {
        self.bars.push(Bar { from, to, paint, label: label.into() });
    }

    pub fn mark(&mut self, at: u64, sign: Sign, label: impl Into<String>) {
        self.marks.push(Mark { at, sign, label: label.into() });
    }
}

/// Number of columns for the names of lanes, and for time.
const NAME: usize = 14;
const TIME: usize = 84;

impl Paint {
    fn letter(self) -> char {
        match self {
            Self::Version(version) => char::from_digit((version % 10) as u32, 10).unwrap_or('?'),
            Self::Training => '=',
            Self::Waiting => '.',
            Self::Pause => '~',
        }
    }
}

impl Chart {
    /// The distance between two ticks: 1, 2 or 5 times a power of ten, for at most eleven of them.
    pub fn tick(&self) -> u64 {
        let steps = (0..).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
        steps.into_iter().find(|tick| (self.to - self.from) / tick <= 10).unwrap_or(1)
    }

    /// The times that the axis names.
    pub fn ticks(&self) -> impl Iterator<Item = u64> {
        let tick = self.tick();
        (self.from.div_ceil(tick)..=self.to / tick).map(move |index| index * tick)
    }

    fn column(&self, at: u64) -> usize {
        let at = at.clamp(self.from, self.to) - self.from;
        ((at as usize * TIME) / (self.to - self.from) as usize).min(TIME - 1)
    }

    /// Draws the timeline in 100 columns.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        for lane in &self.lanes {
            if lane.heading {
                let _ = writeln!(text, "{}", lane.label);
                continue;
            }
            let row: String = self.row(lane).into_iter().collect();
            let _ = writeln!(text, "{:>NAME$} {}", lane.label, row.trim_end());
        }
        let mut axis = vec![' '; TIME];
        for tick in self.ticks() {
            let label = tick.to_string();
            let column = self.column(tick);
            if column + label.len() <= TIME {
                write_at(&mut axis, column, &label);
            }
        }
        let axis: String = axis.into_iter().collect();
        let _ = writeln!(text, "{:>NAME$} {}", "ms", axis.trim_end());
        for (paint, meaning) in &self.legend {
            let letter = if matches!(paint, Paint::Version(_)) { "a digit".to_owned() } else { paint.letter().into() };
            let _ = writeln!(text, "{letter:>NAME$} {meaning}");
        }
        for line in self.notes.iter().flat_map(|note| wrap(note, NAME + TIME)) {
            let _ = writeln!(text, "  {line}");
        }
        text
    }

    fn row(&self, lane: &Lane) -> Vec<char> {
        let mut row = vec![' '; TIME];
        for bar in &lane.bars {
            if bar.to <= self.from || bar.from >= self.to {
                continue;
            }
            let from = self.column(bar.from);
            let to = if bar.to >= self.to { TIME } else { self.column(bar.to).max(from + 1) };
            row[from..to].fill(bar.paint.letter());
            let label: String = bar.label.chars().take(to - from).collect();
            write_at(&mut row, from, &label);
        }
        for mark in lane.marks.iter().filter(|mark| (self.from..=self.to).contains(&mark.at)) {
            let sign = match mark.sign {
                Sign::Consumed => "✓ ",
                Sign::Excluded => "✗ ",
                Sign::Note => "",
            };
            let text = format!("{sign}{}", mark.label);
            let column = self.column(mark.at).min(TIME.saturating_sub(text.chars().count()));
            write_at(&mut row, column, &text);
        }
        row
    }
}

/// Breaks a text into lines of at most this length.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn write_at(row: &mut [char], column: usize, text: &str) {
    row[column..].iter_mut().zip(text.chars()).for_each(|(place, letter)| *place = letter);
}
