"""Protocol buffers' wire format of messages. A schema has the name, number and type of each field.

A message is a dict of the existing fields. A type is one of the words below, another message's schema, or a list of one
of these for a repeated field. Reading skips fields that are not in the schema."""

import struct
from typing import Iterator

from exporting.errors import ExportError

INT, FLOAT, BYTES, TEXT = "int", "float", "bytes", "text"
Schema = dict[str, tuple[int, object]]

VARINT, EIGHT, MEASURED, FOUR = 0, 1, 2, 5  # wire types: varint, 8 bytes, with a length, 4 bytes


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def encode(schema: Schema, message: dict) -> bytes:
    pieces: list[bytes] = []
    for name, value in message.items():
        number, kind = schema[name]
        for one in value if isinstance(kind, list) else [value]:
            pieces += encode_field(number, kind[0] if isinstance(kind, list) else kind, one)
    return b"".join(pieces)


def encode_field(number: int, kind: object, value: object) -> list[bytes]:
    if kind == INT:
        return [varint(number << 3 | VARINT), varint(value)]
    if kind == FLOAT:
        return [varint(number << 3 | FOUR), struct.pack("<f", value)]
    content = value.encode() if kind == TEXT else value if kind == BYTES else encode(kind, value)
    return [varint(number << 3 | MEASURED), varint(len(content)), content]


def decode(schema: Schema, content: bytes | memoryview) -> dict:
    names = {number: (name, kind) for name, (number, kind) in schema.items()}
    message: dict = {}
    try:
        for number, length, value in fields(memoryview(content)):
            if number not in names:
                continue
            name, kind = names[number]
            if isinstance(kind, list):
                message.setdefault(name, []).extend(decode_values(kind[0], length, value))
            else:
                message[name] = decode_values(kind, length, value)[-1]
    except (IndexError, KeyError, TypeError, ValueError, struct.error) as error:
        raise ExportError(f"the file is cut short, or no such file ({error})") from error
    return message


def fields(content: memoryview) -> Iterator[tuple[int, int, object]]:
    """Yields each field's number, its wire type, and its bytes or, of a varint, its value."""
    at = 0
    while at < len(content):
        key, at = read_varint(content, at)
        length = key & 7
        if length == VARINT:
            value, at = read_varint(content, at)
        else:
            count, at = read_varint(content, at) if length == MEASURED else ({EIGHT: 8, FOUR: 4}[length], at)
            if count > len(content) - at:
                raise ValueError(f"a field has {count} bytes where {len(content) - at} are left")
            value, at = content[at:at + count], at + count
        yield key >> 3, length, value


def read_varint(content: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def decode_values(kind: object, length: int, value: object) -> list:
    """Repeated numbers may be packed, one after the other in one field."""
    if kind == INT:
        if length == VARINT:
            return [signed(value)]
        found, at = [], 0
        while at < len(value):
            one, at = read_varint(value, at)
            found.append(signed(one))
        return found
    if kind == FLOAT:
        return list(struct.unpack(f"<{len(value) // 4}f", value))
    if isinstance(kind, dict):
        return [decode(kind, value)]
    return [bytes(value).decode() if kind == TEXT else bytes(value)]


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
