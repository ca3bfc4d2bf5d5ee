"""A hundred tests of a program for Node.js that is written with rhea, driven from pytest."""
