// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/signature.hpp"

#include <gtest/gtest.h>

#include <string>

namespace farandole {
namespace {

// Goal: a signature has the same bytes on every machine, and arrives as it was written.
// Method: the bytes of one; there and back with each bit flipped; every prefix.
TEST(Signature, SurvivesTheWay) {
  Writer writer;
  write(writer, Signature{1, 2, 0x83, 4, -2, 0x0102030405060708});
  const std::string& bytes = writer.bytes();
  EXPECT_EQ(bytes, "\x01\x02\x83\x04\xfe\xff\xff\xff\x08\x07\x06\x05\x04\x03\x02\x01");
  EXPECT_EQ(bytes.size(), kSignatureBytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    Reader reader(damaged);
    Writer again;
    write(again, read_signature(reader));
    EXPECT_TRUE(reader.complete());
    EXPECT_EQ(again.bytes(), damaged) << bit;
  }
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    Reader reader(std::string_view(bytes).substr(0, n));
    (void)read_signature(reader);
    EXPECT_FALSE(reader.ok()) << n;
  }
}

}  // namespace
}  // namespace farandole
