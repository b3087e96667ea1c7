// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/wire.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace farandole {
namespace {

// Goal: what is written is read, in the same layout on every machine.
// Method: the extremes of every type, and the bytes of one integer.
TEST(Wire, ReadsWhatWasWritten) {
  Writer writer;
  writer.u8(255).u16(65535).u32(0xffffffff).u64(std::numeric_limits<std::uint64_t>::max());
  writer.i32(-5)
      .i64(std::numeric_limits<std::int64_t>::min())
      .text("")
      .text(std::string("a\0b", 3));
  Reader reader(writer.bytes());
  EXPECT_EQ(reader.u8(), 255);
  EXPECT_EQ(reader.u16(), 65535);
  EXPECT_EQ(reader.u32(), 0xffffffff);
  EXPECT_EQ(reader.u64(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(reader.i32(), -5);
  EXPECT_EQ(reader.i64(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(reader.text(), "");
  EXPECT_EQ(reader.text(), std::string("a\0b", 3));
  EXPECT_TRUE(reader.complete());
  EXPECT_EQ(Writer().u32(0x01020304).bytes(), "\x04\x03\x02\x01");
}

// Goal: a message cut short anywhere is noticed, and nothing outside it is read.
// Method: every proper prefix, copied so that a sanitizer sees each byte too many.
TEST(Wire, NoticesTruncation) {
  Writer writer;
  writer.u8(1).u16(2).u32(3).u64(4).text("five").text("six");
  for (std::size_t length = 0; length < writer.bytes().size(); ++length) {
    const std::string cut = writer.bytes().substr(0, length);
    Reader reader(cut);
    reader.u8(), reader.u16(), reader.u32(), reader.u64();
    (void)reader.text();
    (void)reader.text();
    EXPECT_FALSE(reader.ok()) << length;
  }
  Reader longer(writer.bytes());
  longer.u8();
  EXPECT_TRUE(longer.ok());
  EXPECT_FALSE(longer.complete());
}

// Goal: a length that promises more than is there gives nothing and allocates nothing.
// Method: a text of 4 GiB in six bytes.
TEST(Wire, DoesNotBelieveLengths) {
  const std::string bytes = Writer().u32(0xffffffff).u16(0).bytes();
  Reader reader(bytes);
  EXPECT_EQ(reader.text(), "");
  EXPECT_FALSE(reader.ok());
}

// Goal: what a field cannot hold is refused, and stays refused.
// Method: each checked field at its limits and one beyond; good bytes after a bad one.
TEST(Wire, RefusesWhatIsOutOfRange) {
  const auto sound = [](const Writer& writer, auto read) {
    Reader reader(writer.bytes());
    read(reader);
    return reader.complete();
  };
  const auto flag = [](Reader& reader) { (void)reader.flag(); };
  EXPECT_TRUE(sound(Writer().flag(false), flag));
  EXPECT_TRUE(sound(Writer().flag(true), flag));
  EXPECT_FALSE(sound(Writer().u8(2), flag));
  const auto below = [](Reader& reader) { EXPECT_LT(reader.below(7), 7); };
  EXPECT_TRUE(sound(Writer().u8(6), below));
  EXPECT_FALSE(sound(Writer().u8(7), below));
  const auto rank = [](Reader& reader) { (void)reader.rank(); };
  EXPECT_TRUE(sound(Writer().i32(0), rank));
  EXPECT_TRUE(sound(Writer().i32(std::numeric_limits<std::int32_t>::max() - 1), rank));
  EXPECT_FALSE(sound(Writer().i32(-1), rank));
  EXPECT_FALSE(sound(Writer().i32(std::numeric_limits<std::int32_t>::max()), rank));
  const auto pair = [](Reader& reader) {
    for (std::size_t left = reader.count(2); left > 0; --left) (void)reader.u16();
  };
  EXPECT_TRUE(sound(Writer().u32(2).u32(0), pair));
  EXPECT_FALSE(sound(Writer().u32(3).u32(0), pair));
  EXPECT_FALSE(sound(Writer().u32(0xffffffff).u32(0), pair));
  Reader reader("\x02\x01");
  EXPECT_FALSE(reader.flag());
  EXPECT_FALSE(reader.ok());
  (void)reader.flag();
  EXPECT_FALSE(reader.complete());
}

// Goal: frames come out as they went in, however the stream is cut.
// Method: many frames of odd sizes, fed in pieces of random size from a printed seed.
TEST(FrameReader, PutsPiecesTogether) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::vector<std::string> payloads;
    std::string stream;
    for (const std::size_t size : {0u, 1u, 4u, 5u, 1000u, 70'000u, 3u}) {
      payloads.emplace_back(size, static_cast<char>('a' + payloads.size()));
      stream += encode_frame(static_cast<std::uint8_t>(payloads.size()), payloads.back());
    }
    FrameReader frames(70'000);
    std::size_t got = 0;
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t piece = 1 + random() % 9000;
      frames.feed(std::string_view(stream).substr(at, piece));
      at += piece;
      while (const auto frame = frames.next()) {
        EXPECT_EQ(frame->payload, payloads[got]);
        EXPECT_EQ(frame->type, ++got);
      }
    }
    EXPECT_EQ(got, payloads.size());
    EXPECT_FALSE(frames.broken());
  }
}

// Goal: a frame that is too long, or has no type, ends the stream before it is stored.
// Method: the longest allowed, one byte more, 4 GiB, and length 0; good frames after it.
TEST(FrameReader, RefusesWhatIsTooLong) {
  FrameReader fitting(8);
  fitting.feed(encode_frame(1, "12345678"));
  EXPECT_TRUE(fitting.next());
  for (const std::string& bad :
       {encode_frame(1, "123456789"), std::string(4, '\0'), std::string(4, '\xff')}) {
    FrameReader frames(8);
    frames.feed(bad + encode_frame(1, "good"));
    EXPECT_FALSE(frames.next());
    EXPECT_TRUE(frames.broken());
    EXPECT_FALSE(frames.next());
  }
}

}  // namespace
}  // namespace farandole
