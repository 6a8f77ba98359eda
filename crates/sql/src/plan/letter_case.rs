//! `lower` and `upper`, letter by letter: a character has the one character that Unicode's simple mapping gives it.
//!
//! | text    | here, PostgreSQL | DataFusion (full mapping) |
//! |---------|------------------|---------------------------|
//! | `ΟΔΟΣ`  | `οδοσ`           | `οδος`: the last sigma of a word is another one |
//! | `straße`| `STRAßE`         | `STRASSE`                 |
//! | `İ`     | `i`              | `i` and a dot above       |

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::wrapping::says_as_inner;

/// One of the two functions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LetterCase {
    inner: Arc<ScalarUDF>,
    is_upper: bool,
}

/// The function, letter by letter if it is one of the two.
pub(super) fn by_letter(function: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    let is_upper = match function.name() {
        "lower" => false,
        "upper" => true,
        _ => return function,
    };
    Arc::new(ScalarUDF::new_from_impl(LetterCase { inner: function, is_upper }))
}

fn lower(letter: char) -> char {
    // The only one that becomes two.
    if letter == '\u{130}' { 'i' } else { only(letter.to_lowercase()).unwrap_or(letter) }
}

fn upper(letter: char) -> char {
    match letter {
        // Greek vowels with an iota below: full mapping writes it behind them.
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => {
            char::from_u32(u32::from(letter) + 8).unwrap_or(letter)
        }
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => char::from_u32(u32::from(letter) + 9).unwrap_or(letter),
        _ => only(letter.to_uppercase()).unwrap_or(letter),
    }
}

/// The only item.
fn only(mut letters: impl Iterator<Item = char>) -> Option<char> {
    letters.next().filter(|_| letters.next().is_none())
}

impl ScalarUDFImpl for LetterCase {
    says_as_inner!();

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let result_type = args.return_field.data_type().clone();
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [texts] = arrays.as_slice() else { return self.inner.invoke_with_args(args) };
        let texts = cast(texts, &ArrowType::Utf8View)?;
        let texts = texts.as_string_view();
        if texts.iter().flatten().all(str::is_ascii) {
            return self.inner.invoke_with_args(args);
        }
        let letter = if self.is_upper { upper } else { lower };
        let mapped = texts.iter().map(|text| text.map(|text| text.chars().map(letter).collect::<String>()));
        let mapped: ArrayRef = Arc::new(mapped.collect::<StringViewArray>());
        Ok(ColumnarValue::Array(cast(&mapped, &result_type)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_has_one_in_the_other_case() {
        let text = |map: fn(char) -> char, text: &str| text.chars().map(map).collect::<String>();
        assert_eq!(text(lower, "ΛΌΓΟΣ Straße İX"), "λόγοσ straße ix");
        assert_eq!(text(upper, "λόγος straße ŉ ﬁ ᾳᾀᾗῃῳ ǆ"), "ΛΌΓΟΣ STRAßE ŉ ﬁ ᾼᾈᾟῌῼ Ǆ");
        // Where full mapping gives one letter it is this one.
        for letter in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
            for (map, full) in [
                (lower as fn(char) -> char, letter.to_lowercase().collect::<String>()),
                (upper, letter.to_uppercase().collect()),
            ] {
                if full.chars().count() == 1 {
                    assert_eq!(map(letter).to_string(), full, "{letter:?}");
                }
            }
        }
    }
}
