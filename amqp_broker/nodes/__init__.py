"""What an address names, and what stands behind a link: Node, Sink and Source, and the broker's own kinds."""
