#pragma once

/// Marks what libespalier_core.so exports. Everything else is hidden (-fvisibility=hidden); plugins export one symbol only.
/// Interfaces and error classes carry it on the class, so that vtable and type information exist once in the process.
#define ESPALIER_API __attribute__((visibility("default")))
