"""What a coordinator or a peer can recover of a site's table: attacks, each a function that returns how far off it is.

`target` is the site, as an operator runs it; `coordinator` and `peer` hold the attacks, `table` lists them with who
carries them out, what stops them and what remains, and `cards` writes docs/explanation/privacy.md from it.
"""
