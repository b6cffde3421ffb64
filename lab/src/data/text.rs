//! Text as people write it, drawn by chance: words whose frequencies follow Zipf's law, in sentences and paragraphs.
//! Pure.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::seeded;

/// As many words as a small organisation's mail uses often.
const WORDS: usize = 12_000;

/// Of all languages' words the commonest is about twice as common as the second, three times as the third, ….
const ZIPF_EXPONENT: f64 = 1.0;

/// Of an English-like text: letters in the order of their frequency, those of vowels and consonants apart, because words
/// alternate between them. A letter's chance falls with its place.
const VOWELS: &[u8] = b"eaoiu";
const CONSONANTS: &[u8] = b"tnshrdlcmwfgypbvk";

/// A line of mail or of a log is broken after this many characters.
const LINE: usize = 72;

/// A vocabulary, the same for the same seed.
pub(super) struct Vocabulary {
    words: Vec<String>,
    /// Sums of the words' weights up to each.
    sums: Vec<f64>,
}

impl Vocabulary {
    pub(super) fn new(seed: u64) -> Self {
        let mut chance = seeded::stream(seed, "vocabulary", 0);
        let mut words = Vec::with_capacity(WORDS);
        let mut sums = Vec::with_capacity(WORDS);
        let mut sum = 0.0;
        for rank in 1..=WORDS {
            // Common words are short.
            let syllables = 1 + (rank as f64).log10().floor() as usize;
            let syllables = chance.random_range(syllables.div_ceil(2)..=syllables);
            words.push(word(syllables, &mut chance));
            sum += (rank as f64).powf(-ZIPF_EXPONENT);
            sums.push(sum);
        }
        Self { words, sums }
    }

    /// One word.
    pub(super) fn word(&self, chance: &mut ChaCha8Rng) -> &str {
        let total = self.sums.last().copied().unwrap_or_default();
        let drawn = chance.random_range(0.0..total);
        let place = self.sums.partition_point(|sum| *sum <= drawn);
        &self.words[place.min(self.words.len() - 1)]
    }

    /// A few words, as subjects and titles have them.
    pub(super) fn phrase(&self, words: usize, chance: &mut ChaCha8Rng) -> String {
        let words: Vec<&str> = (0..words).map(|_| self.word(chance)).collect();
        words.join(" ")
    }

    /// Paragraphs of about `bytes`, lines broken.
    pub(super) fn paragraphs(&self, bytes: usize, chance: &mut ChaCha8Rng) -> String {
        let mut text = String::with_capacity(bytes + 2 * LINE);
        let mut line = 0;
        while text.len() < bytes {
            for number in 0..chance.random_range(4..18) {
                let word = self.word(chance);
                if line + word.len() + 1 > LINE {
                    text.push('\n');
                    line = 0;
                } else if line > 0 {
                    text.push(' ');
                    line += 1;
                }
                let start = text.len();
                text.push_str(word);
                if number == 0 {
                    text[start..start + 1].make_ascii_uppercase();
                }
                line += word.len();
            }
            text.push('.');
            line += 1;
            if chance.random_bool(0.2) {
                text.push_str("\n\n");
                line = 0;
            }
        }
        text.push('\n');
        text
    }
}

fn word(syllables: usize, chance: &mut ChaCha8Rng) -> String {
    let mut word = String::new();
    for _ in 0..syllables {
        word.push(letter(CONSONANTS, chance));
        word.push(letter(VOWELS, chance));
        if chance.random_bool(0.3) {
            word.push(letter(CONSONANTS, chance));
        }
    }
    word
}

/// The smaller of two places drawn: the first letter is twice as common as the middle one.
fn letter(letters: &[u8], chance: &mut ChaCha8Rng) -> char {
    let place = chance.random_range(0..letters.len()).min(chance.random_range(0..letters.len()));
    char::from(letters[place])
}
