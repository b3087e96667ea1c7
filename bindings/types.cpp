// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "farandole/types.hpp"

#include <nanobind/nanobind.h>

#include <string>

#include "bindings.hpp"
#include "farandole/farandole.hpp"

namespace nb = nanobind;

namespace farandole::bindings {
namespace {

/// An enum.Enum whose members have the names that messages use; `list` of the module has the names.
/// Arguments of such a type are bound with noconvert(), so that an integer is no member.
template <class Enum>
void bind_enum(nb::module_& module, const char* type, const char* list, int count) {
  nb::enum_<Enum> bound(module, type);
  nb::list names;
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<Enum>(i);
    const std::string text(name(value));
    bound.value(text.c_str(), value);
    names.append(nb::str(text.c_str()));
  }
  module.attr(list) = names;
}

}  // namespace

void bind_types(nb::module_& module) {
  bind_enum<Collective>(module, "Collective", "COLLECTIVES", kCollectiveCount);
  bind_enum<DType>(module, "DType", "DTYPES", kDTypeCount);
  bind_enum<Reduction>(module, "Reduction", "REDUCTIONS", kReductionCount);
  nb::enum_<Message::Kind>(module, "MessageKind")
      .value("send", Message::Kind::kSend)
      .value("receive", Message::Kind::kReceive);
}

}  // namespace farandole::bindings
