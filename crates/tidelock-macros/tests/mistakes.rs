//! Each mistake in the use of `#[locked]` is named when the program is compiled.

#[test]
fn mistakes_are_named_where_they_are() {
    trybuild::TestCases::new().compile_fail("tests/mistakes/*.rs");
}
