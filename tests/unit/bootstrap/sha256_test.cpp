// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/sha256.hpp"

#include <gtest/gtest.h>

#include <string>

namespace farandole {
namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::uint8_t byte : digest) {
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

// Goal: our SHA-256 is SHA-256.
// Method: the examples of FIPS 180-4 and NIST's test vectors, which cross all block boundaries.
TEST(Sha256, AgreesWithNist) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                       "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu")),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

struct Vector {
  std::string key, data, code;
};

// Goal: our HMAC is HMAC-SHA-256, with short keys and with keys longer than a block.
// Method: the test cases of RFC 4231, but for the fifth, which tests truncation.
TEST(Hmac, AgreesWithRfc4231) {
  std::string counting;
  for (char c = 1; c <= 25; ++c) counting += c;
  const Vector vectors[] = {
      {std::string(20, '\x0b'), "Hi There",
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", "what do ya want for nothing?",
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {std::string(20, '\xaa'), std::string(50, '\xdd'),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {counting, std::string(50, '\xcd'),
       "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
      {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {std::string(131, '\xaa'),
       "This is a test using a larger than block-size key and a larger than block-size data. "
       "The key needs to be hashed before being used by the HMAC algorithm.",
       "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
  };
  for (const Vector& vector : vectors) {
    EXPECT_EQ(hex(hmac_sha256(vector.key, vector.data)), vector.code) << vector.data;
  }
}

// Goal: codes are equal when every byte is, and only then.
// Method: differ in each single bit, and in length.
TEST(EqualInConstantTime, SeesEveryBit) {
  const Digest digest = sha256("x");
  const std::string original(view(digest));
  EXPECT_TRUE(equal_in_constant_time(original, original));
  EXPECT_FALSE(equal_in_constant_time(original, original.substr(1)));
  EXPECT_TRUE(equal_in_constant_time("", ""));
  for (std::size_t bit = 0; bit < 8 * original.size(); ++bit) {
    std::string changed = original;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(equal_in_constant_time(original, changed)) << bit;
  }
}

}  // namespace
}  // namespace farandole
