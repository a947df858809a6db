use super::*;

fn berlin() -> Zone {
    TimeZone::get("Europe/Berlin").expect("the Debian package tzdata brings it").into()
}

fn us(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_microsecond()
}

#[test]
fn times_are_written_as_rfc_3339_has_them() {
    for (time, expected) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400_000_000, "2000-02-29T00:00:00Z"),
        (1_795_305_599_000_001, "2026-11-21T23:59:59.000001Z"),
        (-1_000_000, "1969-12-31T23:59:59Z"),
    ] {
        assert_eq!(Zone::default().text(time), expected);
    }
    assert_eq!(berlin().text(1_795_305_599_500_000), "2026-11-22T00:59:59.500000+01:00");
    assert_eq!(berlin().text(0), "1970-01-01T01:00:00+01:00");
    assert_eq!(berlin().words(0), "1970-01-01 01:00:00");
}

#[test]
fn utc_is_utc_by_any_name() {
    for name in ["UTC", "Etc/UTC", "Etc/Zulu"] {
        assert_eq!(Zone::from(TimeZone::get(name).unwrap()).text(0), "1970-01-01T00:00:00Z", "{name}");
    }
    assert_eq!(Zone::from(TimeZone::posix("UTC0").unwrap()), Zone::default());
    let london: Zone = TimeZone::get("Europe/London").expect("the Debian package tzdata brings it").into();
    assert!(london.text(us("2026-11-22T00:00:00Z")).ends_with("+00:00"), "it is only now and then");
}

#[test]
fn days_weeks_and_months_begin_where_people_live() {
    for (time, step, expected) in [
        ("2026-11-22T22:59:59Z", TimeStep::Day, "2026-11-22T00:00:00+01:00"),
        ("2026-11-22T23:00:00Z", TimeStep::Day, "2026-11-23T00:00:00+01:00"),
        // A Sunday is the last day of its week.
        ("2026-11-22T22:59:59Z", TimeStep::Week, "2026-11-16T00:00:00+01:00"),
        ("2026-11-22T23:00:00Z", TimeStep::Week, "2026-11-23T00:00:00+01:00"),
        ("2026-11-30T23:30:00Z", TimeStep::Month, "2026-12-01T00:00:00+01:00"),
        // Clocks went back on the 25th of October, which has 25 hours.
        ("2026-10-25T22:59:59Z", TimeStep::Day, "2026-10-25T00:00:00+02:00"),
        ("2026-10-25T01:30:00Z", TimeStep::Every(Duration::from_secs(3600)), "2026-10-25T02:00:00+01:00"),
        ("2026-10-25T00:30:00Z", TimeStep::Every(Duration::from_secs(3600)), "2026-10-25T02:00:00+02:00"),
        ("2026-10-25T04:59:00Z", TimeStep::Every(Duration::from_secs(6 * 3600)), "2026-10-25T00:00:00+02:00"),
        ("2026-10-25T05:00:00Z", TimeStep::Every(Duration::from_secs(6 * 3600)), "2026-10-25T06:00:00+01:00"),
    ] {
        let zone = berlin();
        let begins = TimeSteps::new(step, &zone).unwrap().of(us(time));
        assert_eq!(zone.text(begins), expected, "{time} {step}");
    }
    let nepal: Zone = TimeZone::get("Asia/Kathmandu").unwrap().into();
    let hour = TimeStep::Every(Duration::from_secs(3600));
    let begins = TimeSteps::new(hour, &nepal).unwrap().of(us("2026-11-22T10:00:00Z"));
    assert_eq!(nepal.text(begins), "2026-11-22T15:00:00+05:45");
    let monday = TimeSteps::new(TimeStep::Week, &Zone::default()).unwrap().of(us("2026-11-22T10:00:00Z"));
    assert_eq!(Zone::default().text(monday), "2026-11-16T00:00:00Z");
}

#[test]
fn every_slice_lies_in_one_step_and_steps_follow_each_other() {
    let zones = ["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Australia/Lord_Howe"];
    let fixed = [60, 7 * 60, 900, 3600, 2 * 3600, 6 * 3600, 7 * 3600]
        .map(|s| TimeStep::Every(Duration::from_secs(s)));
    for zone in zones {
        let zone: Zone = TimeZone::get(zone).expect("the Debian package tzdata brings it").into();
        for step in fixed.into_iter().chain([TimeStep::Day, TimeStep::Week, TimeStep::Month]) {
            let mut steps = TimeSteps::new(step, &zone).unwrap();
            let mut last = i64::MIN;
            // Half a year with both changes of the clocks, at odd times.
            let mut time = us("2026-09-20T00:00:01Z");
            while time < us("2027-04-15T00:00:00Z") {
                let begins = steps.of(time);
                assert!(begins <= time && begins >= last, "{zone:?} {step} {}", zone.text(time));
                let slice = time.div_euclid(steps.slice()) * steps.slice();
                for within in [slice, slice + steps.slice() - 1] {
                    assert_eq!(zone.begins(within, step), begins, "{zone:?} {step} {}", zone.text(within));
                }
                last = begins;
                time += 1_741_000_003;
            }
        }
    }
}

#[test]
fn steps_suit_the_range() {
    let hours = |hours: u64| TimeStep::for_range(Duration::from_secs(hours * 3600));
    let every = |minutes: u64| TimeStep::Every(Duration::from_secs(minutes * 60));
    assert_eq!(TimeStep::for_range(Duration::from_secs(1800)), every(1));
    assert_eq!((hours(1), hours(6), hours(24)), (every(5), every(15), every(60)));
    assert_eq!((hours(7 * 24), hours(31 * 24), hours(90 * 24)), (every(360), TimeStep::Day, TimeStep::Week));
    assert_eq!(hours(366 * 24), TimeStep::Month);
}

#[test]
fn the_period_before_goes_by_the_calendar_where_this_one_does() {
    let zone = berlin();
    let at = |text: &str| SystemTime::UNIX_EPOCH + Duration::from_micros(us(text).unsigned_abs());
    for (since, until, expected) in [
        // March has 31 days, February 28.
        ("2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00", "2026-02-01T00:00:00+01:00"),
        // Seven days, of which one has 23 hours.
        ("2026-03-26T00:00:00+01:00", "2026-04-02T00:00:00+02:00", "2026-03-19T00:00:00+01:00"),
        ("2026-03-26T12:00:00+01:00", "2026-03-26T13:30:00+01:00", "2026-03-26T10:30:00+01:00"),
    ] {
        assert_eq!(zone.text(zone.before(at(since), at(until))), expected);
    }
}
