// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "conformance/harness.hpp"

namespace farandole::conformance {

INSTANTIATE_TEST_SUITE_P(Transports, Conformance, testing::ValuesIn(fabric_kinds()),
                         [](const auto& test) { return test.param.name; });

}  // namespace farandole::conformance
