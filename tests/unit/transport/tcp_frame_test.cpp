// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "transport/tcp/frame.hpp"

namespace farandole::tcp {
namespace {

using Header = std::array<std::byte, kFrameBytes>;

// One legal frame of each kind, every used field different from zero.
std::vector<Frame> examples() {
  Frame message{.kind = FrameKind::kMessage,
                .tag = {{7, 0xfffffffe}, 3},
                .signature = {1, 2, 3, 4, -1, 0x0123456789abcdef},
                .bytes = 100,
                .payload = 100};
  Frame long_message = message;
  long_message.bytes = kMessageBytesMax;
  long_message.payload = kHeadBytesMax;
  long_message.reply = 0x100000002;
  return {message,
          long_message,
          {.kind = FrameKind::kReady, .id = 0x100000002, .reply = 0x200000001},
          {.kind = FrameKind::kRefuse, .id = 0x100000002},
          {.kind = FrameKind::kData, .id = 5, .offset = 4096, .payload = kSegmentBytesMax}};
}

bool legal(const Frame& frame) {
  return decode(encode(frame)).has_value();
}

// Goal: what one end says is what the other understands, and the bytes stay what they are.
// Method: round trips, and one header spelled out.
TEST(Frame, RoundTrip) {
  for (const Frame& frame : examples()) EXPECT_EQ(decode(encode(frame)), frame);
}

TEST(Frame, BytesAreFixed) {
  const Header header = encode(examples()[4]);
  const std::array<unsigned, 8> start = {0x66, 0x44, kFrameVersion, 4, 0x00, 0x00, 0x10, 0x00};
  for (std::size_t i = 0; i < start.size(); ++i) {
    EXPECT_EQ(std::to_integer<unsigned>(header[i]), start[i]) << i;
  }
  EXPECT_EQ(std::to_integer<unsigned>(header[48]), 5u);
  EXPECT_EQ(std::to_integer<unsigned>(header[65]), 0x10u);
}

// Goal: nothing else than legal frames is understood.
// Method: put every value into magic, version and kind; go over each limit by the least amount;
// fill each field that a kind does not use.
TEST(Frame, WrongMagicVersionOrKind) {
  for (const Frame& frame : examples()) {
    for (std::size_t at = 0; at < 4; ++at) {
      for (unsigned value = 0; value < 256; ++value) {
        Header header = encode(frame);
        const bool same = std::to_integer<unsigned>(header[at]) == value;
        header[at] = static_cast<std::byte>(value);
        const auto decoded = decode(header);
        if (at < 3) {
          EXPECT_EQ(decoded.has_value(), same) << at << " " << value;
        } else {
          EXPECT_TRUE(same || decoded != frame) << value;
          EXPECT_TRUE((value >= 1 && value <= 4) || !decoded) << value;
        }
      }
    }
  }
}

TEST(Frame, MessageLimits) {
  Frame whole = examples()[0];
  whole.bytes = whole.payload = 0;
  EXPECT_TRUE(legal(whole));
  whole.reply = 1;  // nothing follows, so there is nothing to answer
  EXPECT_FALSE(legal(whole));
  whole = examples()[0];
  whole.bytes = whole.payload = kHeadBytesMax + 1;
  EXPECT_FALSE(legal(whole));
  whole.bytes = 99;
  whole.payload = 100;
  EXPECT_FALSE(legal(whole));

  const Frame good = examples()[1];
  for (const auto& spoil : std::vector<void (*)(Frame&)>{
           [](Frame& f) { f.bytes = kMessageBytesMax + 1; }, [](Frame& f) { f.reply = 0; },
           [](Frame& f) { f.payload -= 1; }, [](Frame& f) { f.id = 1; },
           [](Frame& f) { f.offset = 16; }}) {
    Frame bad = good;
    spoil(bad);
    EXPECT_FALSE(legal(bad));
  }
}

TEST(Frame, DataAndAnswerLimits) {
  const std::vector<Frame> good = examples();
  for (std::size_t i = 2; i < good.size(); ++i) {
    for (const auto& spoil : std::vector<void (*)(Frame&)>{
             [](Frame& f) { f.id = 0; }, [](Frame& f) { f.tag.lane = 1; },
             [](Frame& f) { f.signature.root = -1; }, [](Frame& f) { f.bytes = 1; },
             [](Frame& f) { f.reply = f.reply == 0 ? 1 : 0; }, [](Frame& f) { f.offset += 8; },
             [](Frame& f) { f.payload = f.payload == 0 ? 16 : 0; }}) {
      Frame bad = good[i];
      spoil(bad);
      EXPECT_FALSE(legal(bad)) << i;
    }
  }
  Frame data = good[4];
  data.payload = kSegmentBytesMax + 1;
  EXPECT_FALSE(legal(data));
  data = good[4];
  data.offset = ~std::uint64_t{15};  // offset + payload would wrap around
  EXPECT_FALSE(legal(data));
}

// Goal: the decoder accepts exactly what the encoder makes.
// Method: flip every bit of every example; what is still accepted must encode to the same bytes.
TEST(Frame, EveryBitMatters) {
  for (const Frame& frame : examples()) {
    for (std::size_t bit = 0; bit < 8 * kFrameBytes; ++bit) {
      Header header = encode(frame);
      header[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      const auto decoded = decode(header);
      if (!decoded) continue;
      EXPECT_NE(*decoded, frame) << bit;
      EXPECT_EQ(encode(*decoded), header) << bit;
    }
  }
}

}  // namespace
}  // namespace farandole::tcp
