"""What a coordinator or a peer can recover of a site's table: attacks, each a function that returns how far off it is.

`target` is the site, as an operator runs it; `coordinator` and `peer` hold the attacks, `table` lists them with who
carries them out, and `cards` writes docs/results/attacks.md from it.
"""
