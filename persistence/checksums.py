"""The checksum of everything that is stored: CRC-32 as zlib has it, by the quickest way that is there.

ISA-L computes it with the processor's carry-less multiplication, at a third of zlib's time or less. It has
binaries for the usual processors; on others zlib gives the same numbers.
"""

try:
    from isal.isal_zlib import crc32 as crc32
except ImportError:  # no binaries for this processor
    from zlib import crc32 as crc32
