// The guide: the pages of `docs/guide`, which are the same text in the repository. No code is here; the examples of
// the pages are doctests. The folder `docs` of this crate is a link, so that a packaged crate has the pages.
//
// A page names the targets of its links at its end, for readers of the repository. `links-in-rustdoc.txt` defines the
// same names ahead of each page, and the first definition counts: here a link leads to a module, or to the list of
// what is only in the repository.

#![doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#![doc = include_str!("../docs/guide/README.md")]

#[doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#[doc = include_str!("../docs/guide/choosing-a-store.md")]
pub mod choosing_a_store {}

#[doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#[doc = include_str!("../docs/guide/quickstart.md")]
pub mod quickstart {}

#[doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#[doc = include_str!("../docs/guide/locks-in-depth.md")]
pub mod locks_in_depth {}

#[doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#[doc = include_str!("../docs/guide/errors-and-loss.md")]
pub mod errors_and_loss {}

#[doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#[doc = include_str!("../docs/guide/leaders-and-schedulers.md")]
pub mod leaders_and_schedulers {}

#[doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#[doc = include_str!("../docs/guide/fencing.md")]
#[doc = include_str!("../docs/fencing.md")]
pub mod fencing {}

#[doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#[doc = include_str!("../docs/guide/where-a-program-ends.md")]
pub mod where_a_program_ends {}

// Its examples need the feature.
#[doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#[cfg_attr(feature = "testing", doc = include_str!("../docs/guide/testing-your-code.md"))]
#[cfg_attr(not(feature = "testing"), doc = "This page is here if the crate's feature `testing` is enabled.")]
pub mod testing_your_code {}

#[doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#[doc = include_str!("../docs/guide/observability.md")]
pub mod observability {}

#[doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#[doc = include_str!("../docs/guide/production-checklist.md")]
pub mod production_checklist {}

#[doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#[doc = include_str!("../docs/guide/recipes.md")]
pub mod recipes {}

#[doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#[doc = include_str!("../docs/guide/joining-a-redisson-fleet.md")]
pub mod joining_a_redisson_fleet {}

#[doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#[doc = include_str!("../docs/guide/any-language.md")]
pub mod any_language {}

#[doc = include_str!("../docs/guide/links-in-rustdoc.txt")]
#[doc = include_str!("../docs/guide/coming-from.md")]
pub mod coming_from {}
