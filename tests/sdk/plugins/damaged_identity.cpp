extern "C" __attribute__((section("espalier_id"), used)) constinit const char sdk_identity[] =
    "espalier-plugin\nand no more";
