// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace farandole {

/// Appends integers (little endian) and counted texts to a string of bytes.
class Writer {
 public:
  Writer& u8(std::uint8_t value) { return integer(value, 1); }
  Writer& u16(std::uint16_t value) { return integer(value, 2); }
  Writer& u32(std::uint32_t value) { return integer(value, 4); }
  Writer& u64(std::uint64_t value) { return integer(value, 8); }
  Writer& i32(std::int32_t value) { return u32(static_cast<std::uint32_t>(value)); }
  Writer& i64(std::int64_t value) { return u64(static_cast<std::uint64_t>(value)); }
  Writer& flag(bool value) { return u8(value ? 1 : 0); }
  Writer& text(std::string_view value);
  const std::string& bytes() const& { return bytes_; }
  std::string&& bytes() && { return std::move(bytes_); }

 private:
  Writer& integer(std::uint64_t value, int width);
  std::string bytes_;
};

/// Reads what a Writer wrote. Reading past the end gives zeros and empty texts. That, a flag that
/// is neither 0 nor 1, and a failed require() make ok() false for good; so a whole message is read
/// first and judged once.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  std::uint8_t u8() { return static_cast<std::uint8_t>(integer(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(integer(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(integer(4)); }
  std::uint64_t u64() { return integer(8); }
  std::int32_t i32() { return static_cast<std::int32_t>(u32()); }
  std::int64_t i64() { return static_cast<std::int64_t>(u64()); }
  bool flag() { return below(2) != 0; }
  /// A byte less than `end`; for any other byte zero, and ok() is false.
  std::uint8_t below(int end);
  /// The length of a list whose elements take at least so many bytes each; zero if the rest of the
  /// message cannot hold it, so that a damaged length allocates nothing.
  std::size_t count(std::size_t bytes_each_min);
  /// A rank of a job: zero or more.
  std::int32_t rank();
  std::string text();
  /// Makes ok() false unless this holds; without it what was read makes no sense.
  void require(bool condition) { ok_ = ok_ && condition; }
  bool ok() const { return ok_; }
  /// Everything was there and nothing is left.
  bool complete() const { return ok_ && rest_.empty(); }
  std::size_t left() const { return rest_.size(); }

 private:
  std::uint64_t integer(std::size_t width);
  std::string_view rest_;
  bool ok_ = true;
};

/// One control message: its type and its contents.
struct Frame {
  std::uint8_t type = 0;
  std::string payload;
};

/// Length of the rest (4 bytes), type (1 byte), payload.
std::string encode_frame(std::uint8_t type, std::string_view payload);

/// Cuts a stream of bytes into frames of at most `payload_bytes_max`.
class FrameReader {
 public:
  explicit FrameReader(std::size_t payload_bytes_max) : payload_bytes_max_(payload_bytes_max) {}
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  /// The next whole frame, or none. After a frame that is too long or has no type there are no
  /// more, and broken() is true.
  std::optional<Frame> next();
  bool broken() const { return broken_; }

 private:
  std::size_t payload_bytes_max_;
  std::string buffer_;
  std::size_t start_ = 0;  // of what next() has not returned yet
  bool broken_ = false;
};

}  // namespace farandole
