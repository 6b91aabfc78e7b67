"""What several folders of tests share: graphs, models, oracles, ways to run them."""
