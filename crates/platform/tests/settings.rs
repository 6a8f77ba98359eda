//! Settings from text, with every kind of mistake.

use std::time::Duration;

use eris_platform::settings::{ByteSize, Choice, Scope, SettingDeclaration, SettingError, SettingValues, Timeout};
use eris_platform::{SeededRandom, test_load};

eris_platform::settings! {
    static SETTINGS;

    /// Whether it is on.
    const SWITCH: bool = { name: "switch", scope: Session, default: true };
    /// How many.
    ///
    /// More than one line.
    const NUMBER: i64 = { name: "number", scope: Global, default: 7, min: -10, max: 100 };
    /// How long.
    const SPAN: Duration = {
        name: "span", scope: Session,
        default: Duration::from_micros(200), min: Duration::ZERO, max: Duration::from_mins(1),
    };
    /// How much.
    const SIZE: ByteSize = {
        name: "size", scope: Global, default: ByteSize(64 << 20), min: ByteSize(1), max: ByteSize(1 << 40)
    };
    /// Which.
    const LAYOUT: Choice = { name: "layout", scope: Session, default: "mixed", choices: ["row", "column", "mixed"] };
    /// What it is called.
    const NAME: Text = { name: "name", scope: Session, default: "eris" };
    /// As many as there are cpus.
    const WORKERS: i64 = { name: "workers", scope: Global, min: 1, max: 1024 };
}

fn declaration(name: &str) -> &'static SettingDeclaration {
    SETTINGS.iter().find(|setting| setting.name == name).unwrap_or_else(|| panic!("no setting {name}"))
}

/// The value as text, or the error.
fn parsed(name: &str, text: &str) -> String {
    match declaration(name).parse(text) {
        Ok(value) => value.to_string(),
        Err(error) => {
            assert_eq!(error.setting(), name);
            error.to_string()
        }
    }
}

eris_platform::settings! {
    static TIMEOUTS;

    /// How long to wait.
    const PATIENCE: Timeout = { name: "patience", scope: Session, default: Timeout::NEVER };
}

#[test]
fn declarations_say_everything() {
    let described: Vec<_> =
        SETTINGS.iter().map(|setting| (setting.name, setting.type_name(), setting.default_text())).collect();
    assert_eq!(
        described,
        [
            ("switch", "bool", "on".to_owned()),
            ("number", "integer", "7".to_owned()),
            ("span", "duration", "200us".to_owned()),
            ("size", "bytes", "64MB".to_owned()),
            ("layout", "enum", "mixed".to_owned()),
            ("name", "text", "eris".to_owned()),
            ("workers", "integer", "auto".to_owned()),
        ]
    );
    assert_eq!(NUMBER.declaration().description(), "How many. More than one line.");
    assert_eq!(NUMBER.declaration().bounds(), Some(("-10".to_owned(), "100".to_owned())));
    assert_eq!((NUMBER.declaration().scope, SWITCH.declaration().scope), (Scope::Global, Scope::Session));
}

#[test]
fn values_are_read_in_all_their_forms() {
    for (name, text, expected) in [
        ("switch", "OFF", "off"),
        ("switch", " true ", "on"),
        ("switch", "0", "off"),
        ("number", "-10", "-10"),
        ("number", "+42", "42"),
        ("span", "1500us", "1500us"),
        ("span", "1.5ms", "1500us"),
        ("span", "2 s", "2s"),
        ("span", "60000MS", "1min"),
        ("span", "0", "0s"),
        ("span", "7ns", "7ns"),
        ("size", "1", "1B"),
        ("size", "64MB", "64MB"),
        ("size", "0.5 GB", "512MB"),
        ("size", "1tb", "1TB"),
        ("size", "10KiB", "10kB"),
        ("layout", "Row", "row"),
        ("name", "  anything at all ", "anything at all"),
    ] {
        assert_eq!(parsed(name, text), expected, "{name} = {text}");
    }
}

#[test]
fn mistakes_are_named() {
    for (name, text, expected) in [
        ("switch", "maybe", "setting switch must be on or off, not \"maybe\""),
        ("number", "101", "setting number must be between -10 and 100, not 101"),
        ("number", "99999999999999999999", "setting number must be between -10 and 100, not 99999999999999999999"),
        ("number", "7.5", "setting number must be a whole number, not \"7.5\""),
        ("number", "", "setting number must be a whole number, not \"\""),
        ("span", "5", "setting span must be a time with a unit (ns, us, ms, s, min, h), not \"5\""),
        ("span", "61s", "setting span must be between 0s and 1min, not 61s"),
        ("span", "-1s", "setting span must be a time with a unit (ns, us, ms, s, min, h), not \"-1s\""),
        ("size", "0", "setting size must be between 1B and 1TB, not 0"),
        ("size", "2TB", "setting size must be between 1B and 1TB, not 2TB"),
        ("layout", "hexagonal", "setting layout must be one of row, column, mixed, not \"hexagonal\""),
    ] {
        assert_eq!(parsed(name, text), expected, "{name} = {text}");
    }
}

#[test]
fn values_fall_back_to_defaults() {
    let mut values = SettingValues::default();
    assert!(values.get(SWITCH));
    assert_eq!(values.get(NUMBER), 7);
    assert_eq!(values.get(SPAN), Duration::from_micros(200));
    assert_eq!(values.get(SIZE), ByteSize(64 << 20));
    assert_eq!(values.get(LAYOUT), Choice("mixed"));
    assert_eq!(values.get(NAME), "eris");
    assert_eq!(values.get_or(WORKERS, 5), 5);
    assert_eq!(values.text(WORKERS.declaration()), "auto");
    values.set_text(WORKERS.declaration(), "3").unwrap();
    assert_eq!((values.get_or(WORKERS, 5), values.get(WORKERS)), (3, 3));
    assert!(values.set_text(WORKERS.declaration(), "0").is_err());
    assert_eq!(values.get(WORKERS), 3, "a refused value changes nothing");
    values.reset(WORKERS.declaration());
    assert!(!values.is_set(WORKERS.declaration()));
}

/// What is shown can be set, for any value; and no text makes the parser panic.
#[test]
fn shown_values_parse_to_themselves() {
    let mut random = SeededRandom::new(11);
    for _ in 0..test_load(20_000) {
        let span = format!("{}us", random.below(60_000_000));
        let size = format!("{}", 1 + (random.below(1 << 40) >> random.below(40)));
        for (name, text) in [("span", &span), ("size", &size)] {
            let value = declaration(name).parse(text).unwrap();
            assert_eq!(declaration(name).parse(&value.to_string()), Ok(value), "{text}");
        }
        let alphabet = b"0123456789.+-eE kKmMgGtTbBusnhion\xc2\xb5";
        let bytes: Vec<u8> = (0..random.below(24)).map(|_| alphabet[random.index(alphabet.len())]).collect();
        let text = String::from_utf8_lossy(&bytes);
        for setting in SETTINGS {
            if let Ok(value) = setting.parse(&text) {
                assert_eq!(setting.parse(&value.to_string()), Ok(value), "{text}");
            }
        }
    }
}

#[test]
fn timeouts_are_read_and_shown_as_in_postgresql() {
    let timeout = |text: &str| TIMEOUTS[0].parse(text).map(|value| value.to_string());
    for (text, shown) in [
        ("0", "0"),
        ("0ms", "0"),
        ("250", "250ms"),
        ("2s", "2s"),
        (" 2 s ", "2s"),
        ("1.5s", "1500ms"),
        ("60000", "1min"),
        ("90s", "90s"),
        ("2h", "2h"),
        ("1d", "1d"),
        ("1e3", "1s"),
        ("400us", "0"),
        ("600us", "1ms"),
        ("2147483647", "2147483647ms"),
    ] {
        assert_eq!(timeout(text).as_deref(), Ok(shown), "{text}");
    }
    for text in ["", "s", "fast", "2 parsecs", "1s 2", "2S", "nan", "inf", "1.2.3", "--1"] {
        assert!(matches!(timeout(text), Err(SettingError::Malformed { .. })), "{text}");
    }
    for text in ["-1", "2147483648", "25d", "1e300s"] {
        assert!(matches!(timeout(text), Err(SettingError::OutOfBounds { .. })), "{text}");
    }
    assert_eq!(SettingValues::default().get(PATIENCE).duration(), None, "0 is for ever");
    assert_eq!(TIMEOUTS[0].bounds(), Some(("0".to_owned(), "2147483647ms".to_owned())));
}
